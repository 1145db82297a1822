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
}

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
  const words = [...named.map(({ name, meaning }) => ({ text: name, meaning })), ...options];
  return [{ path: path.join(' '), words }, ...named.flatMap(({ name, each }) => placesIn(each, [...path, name]))];
}

const known = (places: readonly Place[]): string[] => places.flatMap(({ path }) => (path === '' ? [] : [path]));
const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

function bash(places: readonly Place[]): string {
  const cases = places.map(({ path, words }) => `    ${quoted(path)}) words=${quoted(textsOf(words))} ;;`);
  return `# bash completion of device-agent: source <(device-agent completion bash)
_device_agent() {
  local current=\${COMP_WORDS[COMP_CWORD]} path='' words='' word
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "\${path:+$path }$word" in
      ${known(places).map(quoted).join('|')}) path="\${path:+$path }$word" ;;
    esac
  done
  case "$path" in
${cases.join('\n')}
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
  case "$at" in
${cases.join('\n')}
  esac
  _describe device-agent following || _files
}
compdef _device_agent device-agent
`;
}

function fish(places: readonly Place[]): string {
  const lines = places.flatMap(({ path, words }) =>
    words.map(({ text, meaning }) => {
      const option = text.startsWith('--') ? `-l ${text.slice(2)}` : `-f -a ${text}`;
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
${lines.join('\n')}
`;
}

const fishQuoted = (text: string): string => `'${text.replace(/['\\]/g, (found) => `\\${found}`)}'`;
