import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { hasErrno, messageOf, OperatorError } from '../lib/errors.ts';
import { thisHost } from '../service/host.ts';
import { AGENT_SERVICE, installedUnit } from '../service/service.ts';
import { stopSignal } from './until-stopped.ts';

interface LogOptions {
  follow?: boolean;
  lines: string;
  json?: boolean;
}

const NO_SERVICE = 4;

/**
 * Shows the log of the agent's service with journalctl, whose exit code becomes that of this process.
 *
 * @throws {OperatorError} exit code 4 without a service: then the log is where the agent was started
 */
export async function logs({ follow, lines, json }: LogOptions): Promise<void> {
  if (!/^(?:\d+|all)$/.test(lines)) throw new OperatorError(`--lines: "${lines}" is neither a number nor "all"`, 2);
  if (installedUnit(AGENT_SERVICE, '') === null || !thisHost().isBooted) {
    throw new OperatorError(
      'no service on this machine: the agent writes its log to standard output, to the terminal or program that started it ' +
        '(in a container: docker logs); LOG_LEVEL and LOG_FORMAT change it',
      NO_SERVICE,
    );
  }
  const args = [
    '-u',
    AGENT_SERVICE.name,
    '-n',
    lines,
    '-o',
    json ? 'json' : 'cat',
    ...(follow ? ['-f'] : ['--no-pager']),
  ];
  // Ctrl-C reaches both processes.
  const stopped = stopSignal();
  const journal = spawn('journalctl', args, { stdio: 'inherit' });
  try {
    const [code] = await once(journal, 'exit');
    process.exitCode = typeof code === 'number' && !stopped.aborted ? code : 0;
  } catch (error) {
    const reason = hasErrno(error, 'ENOENT') ? 'journalctl not found' : messageOf(error);
    throw new OperatorError(`cannot show the log: ${reason}`, 1, { cause: error });
  }
}
