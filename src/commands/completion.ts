import type { Command } from 'commander';

type Shell = 'bash' | 'zsh' | 'fish';

interface Word {
  text: string;
  meaning: string;
}

/** A command by its path below the program, such as `tunnels start`, and the words that may follow it. */
interface Place {
  path: string;
  words: Word[];
  /** Its options with a value: what may follow each, or null for a file or anything else. */
  values: { option: string; choices: readonly string[] | null }[];
  /** What it takes: a `tunnel` of the running agent, a `file`, or anything else, which is null. */
  argument: 'tunnel' | 'file' | null;
}

/** Prints the names of the running agent's tunnels, a line each; bash would expand other characters, which a gateway may send. */
const TUNNEL_NAMES = `device-agent tunnels --json 2>/dev/null | sed -n 's/^ *"url_part": "\\([A-Za-z0-9._:/-]*\\)",$/\\1/p'`;

/** Renders the script that completes commands and options in a shell, from the command tree. */
export function completionScript(program: Command, shell: Shell): string {
  const places = placesIn(program, []);
  if (shell === 'bash') return bash(places);
  return shell === 'zsh' ? zsh(places) : fish(places);
}

function placesIn(command: Command, path: readonly string[]): Place[] {
  const help = command.createHelp();
  const subcommands = help.visibleCommands(command);
  const options = help.visibleOptions(command).flatMap(({ long, description }) => {
    return long ? [{ text: long, meaning: description }] : [];
  });
  const named = subcommands.flatMap((each) =>
    [each.name(), ...each.aliases()].map((name) => ({ name, each, meaning: each.description() })),
  );
  const choices = command.registeredArguments.flatMap(({ argChoices, description }) =>
    (argChoices ?? []).map((text) => ({ text, meaning: description })),
  );
  const words = [...named.map(({ name, meaning }) => ({ text: name, meaning })), ...choices, ...options];
  const values = help.visibleOptions(command).flatMap(({ long, short, required, optional, argChoices, flags }) => {
    const names = required || optional ? [long, short].filter((name) => name != null) : [];
    const known = argChoices ?? (flags.endsWith('<boolean>') ? ['true', 'false'] : null);
    return names.map((option) => ({ option, choices: known }));
  });
  const argument = (['tunnel', 'file'] as const).find((name) =>
    command.registeredArguments.some((each) => each.name() === name),
  );
  const place: Place = { path: path.join(' '), words, values, argument: argument ?? null };
  return [place, ...named.flatMap(({ name, each }) => placesIn(each, [...path, name]))];
}

const known = (places: readonly Place[]): string[] => places.flatMap(({ path }) => (path === '' ? [] : [path]));
/** The paths of commands with such an argument. */
const taking = (wanted: string, places: readonly Place[]): string[] =>
  places.flatMap(({ path, argument }) => (argument === wanted ? [path] : []));
/** Options with a value by what completes it: choices as words, or null for files; `tunnels start --policy`. */
function valuesOf(places: readonly Place[]): Map<string | null, string[]> {
  const byChoices = new Map<string | null, string[]>();
  for (const { path, values } of places) {
    for (const { option, choices } of values) {
      const key = choices?.join(' ') ?? null;
      byChoices.set(key, [...(byChoices.get(key) ?? []), `${path} ${option}`]);
    }
  }
  return byChoices;
}
const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

function bash(places: readonly Place[]): string {
  const cases = places.map(({ path, words }) => `    ${quoted(path)}) words=${quoted(textsOf(words))} ;;`);
  const values = [...valuesOf(places)].map(([choices, options]) => {
    const found = choices === null ? '-f' : `-W ${quoted(choices)}`;
    return `    ${options.map(quoted).join('|')}) COMPREPLY=($(compgen ${found} -- "$current")); return ;;`;
  });
  return `# bash completion of device-agent: source <(device-agent completion bash)
_device_agent() {
  local current=\${COMP_WORDS[COMP_CWORD]} path='' words='' word
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "\${path:+$path }$word" in
      ${known(places).map(quoted).join('|')}) path="\${path:+$path }$word" ;;
    esac
  done
  case "$path \${COMP_WORDS[COMP_CWORD-1]}" in
${values.join('\n')}
  esac
  case "$path" in
${cases.join('\n')}
  esac
  case "$path" in
    ${taking('tunnel', places).map(quoted).join('|')}) [[ $current == -* ]] || words="$(${TUNNEL_NAMES}) $words" ;;
    ${taking('file', places).map(quoted).join('|')}) [[ $current == -* ]] || { COMPREPLY=($(compgen -f -- "$current")); return; } ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _device_agent device-agent
`;
}

const textsOf = (words: readonly Word[]): string => words.map(({ text }) => text).join(' ');

function zsh(places: readonly Place[]): string {
  const cases = places.map(({ path, words }) => {
    const described = words.map(({ text, meaning }) => quoted(`${text}:${meaning}`));
    return `    ${quoted(path)}) following=(${described.join(' ')}) ;;`;
  });
  const values = [...valuesOf(places)].map(([choices, options]) => {
    const found = choices === null ? '_files' : `compadd -- ${choices}`;
    return `    ${options.map(quoted).join('|')}) ${found}; return ;;`;
  });
  return `#compdef device-agent
# zsh completion of device-agent: source <(device-agent completion zsh)
_device_agent() {
  local at='' word
  local -a following
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case "\${at:+$at }$word" in
      ${known(places).map(quoted).join('|')}) at="\${at:+$at }$word" ;;
    esac
  done
  case "$at \${words[CURRENT-1]}" in
${values.join('\n')}
  esac
  case "$at" in
${cases.join('\n')}
  esac
  case "$at" in
    ${taking('tunnel', places).map(quoted).join('|')}) [[ $PREFIX == -* ]] || compadd -- \${(f)"$(${TUNNEL_NAMES})"} ;;
    ${taking('file', places).map(quoted).join('|')}) [[ $PREFIX == -* ]] || { _files; return } ;;
  esac
  _describe device-agent following || _files
}
compdef _device_agent device-agent
`;
}

function fish(places: readonly Place[]): string {
  const names = taking('tunnel', places).map(
    (path) =>
      `complete -c device-agent -n ${fishQuoted(`__device_agent_at ${fishQuoted(path)}`)} -f -a '(__device_agent_tunnels)'`,
  );
  const lines = places.flatMap(({ path, words, values }) =>
    words.map(({ text, meaning }) => {
      const value = values.find(({ option }) => option === text);
      const follows =
        value === undefined ? '' : value.choices === null ? ' -r -F' : ` -x -a ${fishQuoted(value.choices.join(' '))}`;
      const option = text.startsWith('--') ? `-l ${text.slice(2)}${follows}` : `-f -a ${text}`;
      return `complete -c device-agent -n ${fishQuoted(`__device_agent_at ${fishQuoted(path)}`)} ${option} -d ${fishQuoted(meaning)}`;
    }),
  );
  return `# fish completion of device-agent: device-agent completion fish | source
function __device_agent_at
  set -l at
  set -l typed (commandline -opc)
  for word in $typed[2..-1]
    if contains -- (string join -- ' ' $at $word) ${known(places).map(fishQuoted).join(' ')}
      set -a at $word
    end
  end
  test (string join -- ' ' $at | string collect --allow-empty) = $argv[1]
end
function __device_agent_tunnels
  ${TUNNEL_NAMES}
end
${lines.join('\n')}
${names.join('\n')}
`;
}

const fishQuoted = (text: string): string => `'${text.replace(/['\\]/g, (found) => `\\${found}`)}'`;
