import { realpathSync } from 'node:fs';
import { OperatorError } from '../lib/errors.ts';
import { requireRoot, thisHost } from '../service/host.ts';
import { installService } from '../service/install.ts';
import { AGENT_SERVICE, GATEWAY_SERVICE, type Service } from '../service/service.ts';
import { type ServiceState, serviceState } from '../service/status.ts';
import { uninstallService } from '../service/uninstall.ts';
import type { ProgramPaths } from '../service/unit.ts';

interface ServiceOptions {
  gateway?: boolean;
  purge?: boolean;
}

/** As systemctl's own: 3 does not run, 4 is not there. */
const EXIT_CODES: Partial<Record<ServiceState['state'], number>> = { running: 0, 'not installed': 4 };

const chosen = ({ gateway }: ServiceOptions): Service => (gateway ? GATEWAY_SERVICE : AGENT_SERVICE);
const tell = (line: string) => void process.stdout.write(`${line}\n`);

export async function install(options: ServiceOptions): Promise<void> {
  requireRoot();
  await installService(chosen(options), program(), thisHost(), tell);
}

export async function uninstall(options: ServiceOptions): Promise<void> {
  requireRoot();
  await uninstallService(chosen(options), options.purge === true, thisHost(), tell);
}

/** Sets the process's exit code by the state. */
export async function status(options: ServiceOptions): Promise<void> {
  const { state, lines } = await serviceState(chosen(options), program(), thisHost());
  for (const line of lines) tell(line);
  process.exitCode = EXIT_CODES[state] ?? 3;
}

/** Where this very program lies. */
function program(): ProgramPaths {
  const [node, cli] = process.argv;
  if (node === undefined || cli === undefined) throw new OperatorError('this program does not know its own path');
  return { node: realpathSync(node), cli: realpathSync(cli) };
}
