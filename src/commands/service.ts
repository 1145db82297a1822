import { requireRoot, thisHost, thisProgram } from '../service/host.ts';
import { installService } from '../service/install.ts';
import { AGENT_SERVICE, GATEWAY_SERVICE, type Service } from '../service/service.ts';
import { type ServiceState, serviceState } from '../service/status.ts';
import { uninstallService } from '../service/uninstall.ts';

interface ServiceOptions {
  gateway?: boolean;
  purge?: boolean;
}

/** The same as systemctl's; 3 for all other states. */
const EXIT_CODES: Partial<Record<ServiceState['state'], number>> = { running: 0, 'not installed': 4 };

const chosen = ({ gateway }: ServiceOptions): Service => (gateway ? GATEWAY_SERVICE : AGENT_SERVICE);
const print = (line: string) => void process.stdout.write(`${line}\n`);

export async function install(options: ServiceOptions): Promise<void> {
  requireRoot();
  await installService(chosen(options), thisProgram(), thisHost(), print);
}

export async function uninstall(options: ServiceOptions): Promise<void> {
  requireRoot();
  await uninstallService(chosen(options), options.purge === true, thisHost(), print);
}

/** Prints the state and sets the exit code. */
export async function status(options: ServiceOptions): Promise<void> {
  const { state, lines } = await serviceState(chosen(options), thisProgram(), thisHost());
  for (const line of lines) print(line);
  process.exitCode = EXIT_CODES[state] ?? 3;
}
