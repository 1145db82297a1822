import type { Host } from './host.ts';
import { readIfAny } from './install.ts';
import { installedUnit, type Service } from './service.ts';
import { isEdited, type ProgramPaths, unitText } from './unit.ts';

export interface ServiceState {
  /** `running` includes readiness. */
  state: 'not installed' | 'stopped' | 'starting' | 'running' | 'stopping' | 'failing';
  lines: string[];
}

const PROPERTIES = [
  'ActiveState',
  'SubState',
  'ActiveEnterTimestamp',
  'MainPID',
  'NRestarts',
  'Result',
  'ExecMainStatus',
  'StatusText',
  'UnitFileState',
  'NeedDaemonReload',
  'DropInPaths',
];

/** Reads the state of a service; does not require root. */
export async function serviceState(service: Service, paths: ProgramPaths, host: Host): Promise<ServiceState> {
  const file = installedUnit(service, host.root);
  const unit = file && (await readIfAny(host, file));
  if (unit === null) return { state: 'not installed', lines: [`${service.name}: not installed`] };
  if (!host.isBooted) {
    return { state: 'stopped', lines: [`${service.name}: installed, but systemd is not running on this machine`] };
  }
  const shown = await host.run('systemctl', 'show', service.name, `--property=${PROPERTIES.join(',')}`);
  const properties = new Map(
    shown.split('\n').map((line) => {
      const [name = '', ...value] = line.split('=');
      return [name, value.join('=')] as const;
    }),
  );
  const of = (name: string) => properties.get(name) ?? '';
  const state = stateOf(of);
  const restarts = Number(of('NRestarts'));
  const since = state === 'running' ? ` since ${of('ActiveEnterTimestamp')}, process ${of('MainPID')}` : '';
  // During a retry, Result can still be `success`.
  const how = of('Result') === 'success' ? '' : ` (${of('Result')}, exit code ${of('ExecMainStatus')})`;
  const end = state === 'failing' ? `${how}: journalctl -u ${service.name}` : '';
  const outdated = !isEdited(unit) && unit !== unitText(service, paths);
  return {
    state,
    lines: [
      `${service.name}: ${state}${since}${end}`,
      ...(of('StatusText') ? [`  reports: ${of('StatusText')}`] : []),
      ...(restarts > 0 ? [`  restarts by systemd: ${restarts}`] : []),
      `  at boot: ${of('UnitFileState') === 'enabled' ? 'starts' : `does not start (${of('UnitFileState')})`}`,
      `  unit: ${file}${isEdited(unit) ? ' (edited)' : ''}${of('DropInPaths') ? ` with ${of('DropInPaths')}` : ''}`,
      ...(outdated ? ['  the unit belongs to another version or path of this program: install again'] : []),
      ...(of('NeedDaemonReload') === 'yes' ? ['  the unit changed on disk: run systemctl daemon-reload'] : []),
    ],
  };
}

function stateOf(of: (name: string) => string): ServiceState['state'] {
  switch (of('ActiveState')) {
    case 'active':
    case 'reloading':
      return 'running';
    case 'activating':
      return of('SubState') === 'auto-restart' || Number(of('NRestarts')) > 0 ? 'failing' : 'starting';
    case 'deactivating':
      return 'stopping';
    case 'failed':
      return 'failing';
    default:
      return 'stopped';
  }
}
