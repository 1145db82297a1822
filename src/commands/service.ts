import { requireRoot, thisHost, thisProgram } from '../service/host.ts';
import { installService } from '../service/install.ts';
import { AGENT_SERVICE, GATEWAY_SERVICE, type Service } from '../service/service.ts';
import { type ServiceState, serviceState } from '../service/status.ts';
import { uninstallService } from '../service/uninstall.ts';

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
  await installService(chosen(options), thisProgram(), thisHost(), tell);
}

export async function uninstall(options: ServiceOptions): Promise<void> {
  requireRoot();
  await uninstallService(chosen(options), options.purge === true, thisHost(), tell);
}

/** Sets the process's exit code by the state. */
export async function status(options: ServiceOptions): Promise<void> {
  const { state, lines } = await serviceState(chosen(options), thisProgram(), thisHost());
  for (const line of lines) tell(line);
  process.exitCode = EXIT_CODES[state] ?? 3;
}
