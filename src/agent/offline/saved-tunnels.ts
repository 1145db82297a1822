import { readdir, readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { hasErrno, messageOf, OperatorError } from '../../lib/errors.ts';
import { backupOf, DurableFile, damagedIn } from '../../lib/files/durable-file.ts';
import type { Log } from '../../lib/log/log.ts';
import type { Settings } from '../../settings/agent-settings.ts';
import { loadDefaultPolicies } from '../../traffic-policy/load-default-policies.ts';
import { optionsOf } from '../connectors/connector.ts';
import {
  changedTunnel,
  changeTo,
  type DeclaredChange,
  declaredAmong,
  parseDeclaredTunnels,
  unchangeable,
  undeclaredAmong,
} from '../tunnels/declared-tunnels.ts';
import {
  differencesBetween,
  type ImportedTunnel,
  type ImportRules,
  parseTunnels,
  storedTunnel,
} from '../tunnels/tunnel-import.ts';
import { mergeTunnels, type Tunnel, TunnelStore, tunnelsCodec, tunnelsFile } from '../tunnels/tunnels-file.ts';

export { exportText, type Tunnel, tunnelsFile } from '../tunnels/tunnels-file.ts';

/** Content of the tunnels' file or of its backup. */
export type FileContent =
  | { state: 'good'; tunnels: readonly Tunnel[]; leftOut: readonly string[] }
  | { state: 'missing' }
  | { state: 'damaged' | 'unusable'; reason: string };

/** The tunnels on the disk, as they are there. */
export interface SavedTunnels {
  path: string;
  main: FileContent;
  backup: FileContent;
  damaged: readonly string[];
  /** Those that an agent would start with. */
  tunnels: readonly Tunnel[];
}

/** Reads the saved tunnels of an agent, running or not, without changing anything. */
export async function readSavedTunnels(dataDir: string): Promise<SavedTunnels> {
  const path = tunnelsFile(dataDir);
  const [main, backup, damaged] = await Promise.all([load(path), load(backupOf(path)), setAside(path)]);
  return { path, main, backup, damaged, tunnels: tunnelsIn(main, backup) };
}

function tunnelsIn(main: FileContent, backup: FileContent): readonly Tunnel[] {
  const copy = backup.state === 'good' ? backup.tunnels : [];
  if (main.state === 'unusable') return [];
  if (main.state !== 'good') return copy;
  return main.leftOut.length === 0 ? main.tunnels : mergeTunnels(main.tunnels, copy);
}

async function load(path: string): Promise<FileContent> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return { state: 'missing' };
    const state = hasErrno(error, 'EIO') ? 'damaged' : 'unusable';
    return { state, reason: `cannot read ${path}: ${messageOf(error)}` };
  }
  try {
    const leftOut: string[] = [];
    const { tunnels } = tunnelsCodec.decode(text, (reason) => leftOut.push(reason));
    return { state: 'good', tunnels, leftOut };
  } catch (error) {
    return { state: error instanceof OperatorError ? 'unusable' : 'damaged', reason: messageOf(error) };
  }
}

async function setAside(path: string): Promise<string[]> {
  const names = await readdir(dirname(path)).catch(() => []); // reported elsewhere
  return damagedIn(names, path);
}

/** The members of `POST /tunnels` that would make a tunnel like this one, but for its domain. */
export function membersOf(tunnel: Tunnel) {
  const { protocol, forwards_to, policy } = tunnel;
  return { protocol, forwards_to, policy, ...optionsOf(tunnel) };
}

/** Where the tunnels are: a running agent, or its data folder. */
export interface TunnelsTarget {
  present: readonly Tunnel[];
  create(tunnel: ImportedTunnel): Promise<unknown>;
  change(tunnel: Tunnel, members: DeclaredChange): Promise<unknown>;
  remove(tunnel: Tunnel): Promise<unknown>;
}

/** Opens the saved tunnels of a stopped agent, whose data folder the caller holds. @throws {OperatorError} when they are unusable */
export async function openSavedTunnels(dataDir: string, log: Log): Promise<TunnelsTarget> {
  const store = new TunnelStore(new DurableFile({ path: tunnelsFile(dataDir), codec: tunnelsCodec, log }));
  await store.open();
  return {
    present: store.list(),
    create: (tunnel) => store.save(storedTunnel(tunnel)),
    change: (tunnel, members) => store.save(changedTunnel(tunnel, members)),
    remove: ({ id }) => store.remove(id),
  };
}

/** What has to be done for one tunnel of a file, and why nothing can be; `detail`: what differs. */
export interface TunnelStep {
  domain: string;
  result: 'created' | 'changed' | 'deleted' | 'unchanged' | 'kept' | 'failed';
  detail: string | null;
  run(target: TunnelsTarget): Promise<unknown>;
}

const nothing = async () => {};

/**
 * Reads the tunnels of an export, a `tunnels.json`, or the file of ngrok's sample agent.
 *
 * @returns what creates those that are missing among others; existing ones that differ are kept
 * @throws {OperatorError} exit code 2, listing everything that is wrong with any of the tunnels
 */
export async function readImport(
  text: string,
  source: string,
  settings: Settings,
): Promise<(present: readonly Tunnel[]) => TunnelStep[]> {
  const tunnels = parseTunnels(text, source, await rulesOf(settings));
  return (present) => {
    const byDomain = new Map(present.map((tunnel) => [tunnel.domain, tunnel]));
    return tunnels.map((imported) => importStep(imported, byDomain.get(imported.domain)));
  };
}

function importStep(imported: ImportedTunnel, there: Tunnel | undefined): TunnelStep {
  const { domain } = imported;
  if (!there) return { domain, result: 'created', detail: null, run: ({ create }) => create(imported) };
  const differing = differencesBetween(there, imported);
  if (differing.length === 0) return { domain, result: 'unchanged', detail: null, run: nothing };
  const detail = `the existing tunnel has a different ${differing.join(' and ')}; delete it first`;
  return { domain, result: 'kept', detail, run: nothing };
}

/**
 * Reads the tunnels that a file declares.
 *
 * @param prune whether all others are deleted
 * @returns what makes present tunnels the declared ones, in the order of the file; deletions first, which may free ports
 * @throws {OperatorError} exit code 2, listing everything that is wrong with any of the tunnels
 */
export async function readDeclared(
  text: string,
  source: string,
  settings: Settings,
  prune: boolean,
): Promise<(present: readonly Tunnel[]) => TunnelStep[]> {
  const { site } = settings;
  const declared = await parseDeclaredTunnels(text, source, { ...(await rulesOf(settings)), site });
  return (present) => {
    const superfluous = prune ? undeclaredAmong(present, declared, site) : [];
    return [
      ...superfluous.map((tunnel): TunnelStep => {
        return { domain: tunnel.domain, result: 'deleted', detail: null, run: ({ remove }) => remove(tunnel) };
      }),
      ...declared.map((tunnel) => declaredStep(tunnel, declaredAmong(present, tunnel, site))),
    ];
  };
}

function declaredStep(declared: ImportedTunnel, there: Tunnel | undefined): TunnelStep {
  const domain = there?.domain ?? declared.domain;
  if (!there) return { domain, result: 'created', detail: null, run: ({ create }) => create(declared) };
  const differing = differencesBetween(there, { ...declared, domain });
  if (differing.length === 0) return { domain, result: 'unchanged', detail: null, run: nothing };
  const problem = unchangeable(differing);
  if (problem !== null) return { domain, result: 'failed', detail: problem, run: nothing };
  const detail = differing.join(' and ');
  return { domain, result: 'changed', detail, run: ({ change }) => change(there, changeTo(declared, differing)) };
}

async function rulesOf({ defaultPolicies, api }: Settings): Promise<ImportRules> {
  return {
    defaultPolicies: await loadDefaultPolicies(defaultPolicies),
    reservedDomains: api.domain === null ? [] : [api.domain],
  };
}
