import { diagnose } from '../doctor/diagnose.ts';
import { type Finding, renderReport, wantsColor } from '../doctor/finding.ts';
import { OperatorError } from '../lib/errors.ts';
import { createLog } from '../lib/log/log.ts';
import { VERSION } from '../packaged.ts';
import { requireRoot, thisHost, thisProgram } from '../service/host.ts';
import { AGENT_SERVICE, GATEWAY_SERVICE, serviceEnvironment, stateFolderOf } from '../service/service.ts';
import { serviceState } from '../service/service-state.ts';
import { loadSettings } from '../settings/agent-settings.ts';
import { loadGatewayServerSettings } from '../settings/gateway-settings.ts';
import { loadManagementSettings } from '../settings/management-settings.ts';
import { unknownSettings } from '../settings/parse-settings.ts';
import { printed, show } from './output.ts';
import { gatewayPlace } from './settings-place.ts';

interface DoctorOptions {
  json?: boolean;
  service?: boolean;
}

type Load<T> = (env: NodeJS.ProcessEnv, folder: string) => T;

/** Diagnoses this device, prints the findings and exits: 0 without problems, 1 otherwise. */
export async function doctor(options: DoctorOptions): Promise<void> {
  const findings = await diagnoseHere(options);
  await endWith(findings, options);
}

/** Diagnoses the gateway on this machine, as {@link doctor} does the agent. */
export async function gatewayDoctor(options: { json?: boolean; from?: string }): Promise<void> {
  const { env, folder, isService } = gatewayPlace('data');
  const { diagnoseGateway } = await import('../doctor/gateway/diagnose-gateway.ts');
  const unknown = attempt(() => unknownSettings(env, folder));
  const findings = await diagnoseGateway(
    attempt(() => loadGatewayServerSettings(env, folder)),
    {
      unknownSettings: unknown instanceof OperatorError ? [] : unknown,
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

/** Diagnoses this device with the settings of the environment, or of the service. */
export async function diagnoseHere(options: Pick<DoctorOptions, 'service'> = {}): Promise<Finding[]> {
  if (options.service) requireRoot();
  const read = <T>(load: Load<T>): T | OperatorError => attempt(() => readSettings(load, options));
  const management = read(loadManagementSettings);
  const unknown = read(unknownSettings);
  return diagnose(read(loadSettings), {
    log: await createLog('silent', 'json'),
    // The check of the settings reports the error.
    dateFrom: management instanceof OperatorError ? null : management.apiUrl,
    unknownSettings: unknown instanceof OperatorError ? [] : unknown,
    ...(options.service && { service: () => serviceState(AGENT_SERVICE, thisProgram(), thisHost()) }),
  });
}

function readSettings<T>(load: Load<T>, { service }: DoctorOptions): T {
  if (!service) return load(process.env, process.cwd());
  return load(serviceEnvironment(AGENT_SERVICE, thisHost()), stateFolderOf(AGENT_SERVICE));
}

function attempt<T>(work: () => T): T | OperatorError {
  try {
    return work();
  } catch (error) {
    if (error instanceof OperatorError) return error;
    throw error;
  }
}
