import { execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { completionScript } from '../../src/commands/completion.ts';
import { buildProgram } from '../../src/commands/program.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const bash = completionScript(buildProgram(), 'bash');

it.each([
  [['tun'], ['tunnels']],
  [['tunnels', 'st'], ['start']],
  [['tunnels', 'ls', '--w'], ['--watch']],
  [['--debug', 'tunnels', 'rm', 'camera', '--js'], ['--json']],
  [['gateway', 'api-key', 'li'], ['list']],
])('bash completes %j to %j', (typed, completed) => {
  const words = ['device-agent', ...typed].map((word) => `'${word}'`).join(' ');
  const script = `${bash}\nCOMP_WORDS=(${words}); COMP_CWORD=${typed.length}; _device_agent; printf '%s\\n' "\${COMPREPLY[@]}"`;
  expect(execFileSync('bash', ['-c', script], { encoding: 'utf8' }).trim().split('\n')).toEqual(completed);
});

it.each(['zsh', 'fish'] as const)('the script for %s has every command, and that shell reads it', (shell) => {
  const script = completionScript(buildProgram(), shell);
  for (const word of ['status', 'tunnels start', 'watch', 'api-key']) expect(script).toContain(word);
  const file = join(temporaryFolder(), 'completion');
  writeFileSync(file, script);
  const checked = spawnSync(shell, ['-n', file], { encoding: 'utf8' });
  // Few machines have these shells.
  if (!checked.error) expect([checked.status, checked.stderr]).toEqual([0, '']);
});
