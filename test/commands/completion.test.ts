import { execFileSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { completionScript } from '../../src/commands/completion.ts';
import { buildProgram } from '../../src/commands/program.ts';
import { type Missing, programMissing, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

type Shell = Parameters<typeof completionScript>[1];

/** Types a line in a terminal of zsh, and prints what its completion system adds as matches. $1: script, $2: line */
const ZSH = `
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PROMPT=; autoload -Uz compinit; compinit -u -D; source \${(q)1}
compadd() { local -a found; builtin compadd -O found \\"\\$@\\"; (( \\$#found )) && print -rl -- match=\\$^found; builtin compadd \\"\\$@\\"; }
typed() { zle complete-word; print -r -- completed; }
zle -N typed; bindkey '^X' typed; print -r -- re''ady"
zpty -r shell seen '*ready*'
zpty -n -w shell "$2"$'\\x18'
zpty -r shell seen '*completed*'
print -r -- "$seen" | tr '\\r' '\\n' | sed -n 's/.*match=//p' | sort -u
`;

/** The command that prints what a shell suggests for the last word. */
const COMPLETE: Record<Shell, (script: string, typed: string[]) => string[]> = {
  bash: (script, typed) => {
    const words = ['device-agent', ...typed].map((word) => `'${word}'`).join(' ');
    const complete = `COMP_WORDS=(${words}); COMP_CWORD=${typed.length}; _device_agent; printf '%s\\n' "\${COMPREPLY[@]}"`;
    return ['bash', '-c', `source '${script}'\n${complete}`];
  },
  zsh: (script, typed) => ['zsh', '-f', '-c', ZSH, 'zsh', script, ['device-agent', ...typed].join(' ')],
  fish: (script, typed) => {
    const complete = `complete -C '${['device-agent', ...typed].join(' ')}' | string split --fields 1 \\t; true`; // fails without a tab
    return ['fish', '--no-config', '-c', `source '${script}'; ${complete}`];
  },
};

const MISSING: Record<Shell, Missing> = {
  bash: programMissing('bash', '--version'),
  zsh: programMissing('zsh', '--version'),
  fish: programMissing('fish', '--version'),
};

describe.each(['bash', 'zsh', 'fish'] as const)('the completion of %s', (shell) => {
  const script = completionScript(buildProgram(), shell);

  it.each([
    [['tun'], ['tunnels']],
    [['tunnels', 'st'], ['start']],
    [['tunnels', 'ls', '--w'], ['--watch']],
    [['--debug', 'tunnels', 'rm', 'camera', '--js'], ['--json']],
    [['gateway', 'api-key', 'li'], ['list']],
    [['http', '3000', '--policy', 'den'], ['deny.yaml']],
    [['http', '3000', '--rewrite-redirects', 't'], ['true']],
    [['tunnels', 'rm', 'cam'], ['camera']],
    [['tunnels', 'apply', 'den'], ['deny.yaml']],
    [['completion', 'z'], ['zsh']],
  ])('completes %j to %j', unless(MISSING[shell]), (typed, completed) => {
    const folder = temporaryFolder();
    const file = join(folder, 'script');
    writeFileSync(file, script);
    writeFileSync(join(folder, 'deny.yaml'), '');
    // What the program prints of a running agent.
    writeFileSync(
      join(folder, 'device-agent'),
      `#!/bin/sh\necho '    "url_part": "camera",'\necho '    "url_part": "cam$(touch bad)",'\n`,
      { mode: 0o755 },
    );
    const [program = '', ...args] = COMPLETE[shell](file, typed);
    const env = { PATH: `${folder}:${process.env.PATH}`, HOME: folder, TERM: 'dumb' };
    const printed = execFileSync(program, args, {
      cwd: folder,
      env,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    expect(printed.trim().split('\n')).toEqual(completed);
    expect(existsSync(join(folder, 'bad'))).toBe(false);
  });
});
