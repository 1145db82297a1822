import { diagnose } from '../doctor/diagnose.ts';
import { type Finding, renderReport } from '../doctor/finding.ts';
import { OperatorError } from '../lib/errors.ts';
import { createLog } from '../lib/log/log.ts';
import { wantsColor } from '../lib/terminal-text.ts';
import { VERSION } from '../packaged.ts';
import { requireRoot, thisHost, thisProgram } from '../service/host.ts';
import { AGENT_SERVICE, GATEWAY_SERVICE } from '../service/service.ts';
import { serviceState } from '../service/service-state.ts';
import { loadSettings } from '../settings/agent-settings.ts';
import { loadGatewayServerSettings } from '../settings/gateway-settings.ts';
import { loadManagementSettings } from '../settings/management-settings.ts';
import { lineProblems, unknownSettings } from '../settings/parse-settings.ts';
import { printed, show } from './output.ts';
import { agentPlace, gatewayPlace, type Place, servicePlace } from './settings-place.ts';

interface DoctorOptions {
  json?: boolean;
  service?: boolean;
}

type Load<T> = (env: NodeJS.ProcessEnv, folder: string) => T;

/** Diagnoses this device, prints the findings and exits: 0 without problems, 1 otherwise. */
export async function doctor(options: DoctorOptions): Promise<void> {
  if (options.service) requireRoot();
  const place = options.service ? servicePlace(AGENT_SERVICE) : agentPlace('data');
  await endWith(await diagnoseAgent(place), options);
}

/** Diagnoses the gateway on this machine, as {@link doctor} does the agent. */
export async function gatewayDoctor(options: { json?: boolean; from?: string }): Promise<void> {
  const { env, folder, isService } = gatewayPlace('data');
  const { diagnoseGateway } = await import('../doctor/gateway/diagnose-gateway.ts');
  const doubts = doubtsAbout({ env, folder });
  const findings = await diagnoseGateway(
    attempt(() => loadGatewayServerSettings(env, folder)),
    {
      ...doubts,
      from: options.from ?? null,
      ...(isService && { service: () => serviceState(GATEWAY_SERVICE, thisProgram(), thisHost()) }),
    },
  );
  await endWith(findings, options);
}

async function endWith(findings: readonly Finding[], options: { json?: boolean }): Promise<never> {
  const isSound = findings.every(({ status }) => status !== 'failed');
  const color = wantsColor(process.stdout, process.env);
  show({ ok: isSound, version: VERSION, findings }, options, (shown) => renderReport(shown.findings, color));
  await printed();
  // A check that timed out may have left a connection attempt behind.
  process.exit(isSound ? 0 : 1);
}

/** Diagnoses the agent of this device that has its settings there. */
export async function diagnoseAgent({ env, folder, isService }: Place): Promise<Finding[]> {
  const read = <T>(load: Load<T>): T | OperatorError => attempt(() => load(env, folder));
  const management = read(loadManagementSettings);
  const doubts = doubtsAbout({ env, folder });
  return diagnose(read(loadSettings), {
    log: await createLog('silent', 'json'),
    // The check of the settings reports the error.
    dateFrom: management instanceof OperatorError ? null : management.apiUrl,
    ...doubts,
    ...(isService && {
      service: () => serviceState(AGENT_SERVICE, thisProgram(), thisHost()),
      lastUpdate: async () => (await import('../update/updater.ts')).lastFailure(),
    }),
  });
}

/** Of settings that nobody can read, the check of the settings reports the error. */
function doubtsAbout({ env, folder }: Pick<Place, 'env' | 'folder'>) {
  const doubts = attempt(() => ({
    unknownSettings: unknownSettings(env, folder),
    lineProblems: lineProblems(env, folder),
  }));
  return doubts instanceof OperatorError ? {} : doubts;
}

function attempt<T>(work: () => T): T | OperatorError {
  try {
    return work();
  } catch (error) {
    if (error instanceof OperatorError) return error;
    throw error;
  }
}
