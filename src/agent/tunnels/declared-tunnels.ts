import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { hasErrno, messageOf, OperatorError } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { CHANGEABLE_OPTIONS } from '../connectors/connector.ts';
import { domainsFor, isLabel, type Site } from './site-names.ts';
import { StoredTunnel, type Tunnel } from './tunnel.ts';
import {
  checkTunnel,
  differencesBetween,
  type ImportedTunnel,
  type ImportRules,
  storedTunnel,
} from './tunnel-import.ts';
import type { TunnelStore } from './tunnels-file.ts';

/** Members to change; null resets one. */
export type DeclaredChange = Readonly<Record<string, unknown>>;

const Declaration = z.strictObject({ tunnels: z.array(z.unknown()) });

/**
 * Reads the tunnels that a file declares. Each has the members of `POST /tunnels`, and a domain that identifies it.
 *
 * @throws {OperatorError} exit code 2, listing everything that is wrong with any of the tunnels
 */
export async function parseDeclaredTunnels(
  text: string,
  source: string,
  rules: ImportRules,
): Promise<ImportedTunnel[]> {
  const problems: string[] = [];
  const { tunnels: all, isEmpty } = await declarationsIn(text, source);
  const tunnels = all.flatMap((declared, at) => {
    if (isEmpty(['tunnels', at, 'policy']))
      problems.push(`tunnels[${at}].policy: is empty; write {} for no rules, or leave it out for the default policies`);
    const found = checkTunnel(declared, rules);
    if (!Array.isArray(found)) {
      if (isLabel(found) && !rules.site) problems.push(`tunnels[${at}].domain: give the whole hostname`);
      return [found];
    }
    problems.push(...found.map((problem) => `tunnels[${at}].${problem}`));
    return [];
  });
  const domains = tunnels.flatMap((tunnel) => domainsFor(tunnel, rules.site ?? null));
  const repeated = new Set(domains.filter((domain, at) => domains.indexOf(domain) !== at));
  for (const domain of repeated) problems.push(`${domain}: declared more than once`);
  if (problems.length === 0) return tunnels;
  const list = problems.map((problem) => `\n  ${problem}`).join('');
  throw new OperatorError(`nothing was changed: ${source} has problems:${list}`, 2);
}

interface Declarations {
  tunnels: unknown[];
  /** Whether nothing is written there, which YAML takes for null. */
  isEmpty(place: (string | number)[]): boolean;
}

async function declarationsIn(text: string, source: string): Promise<Declarations> {
  let content: unknown;
  let isEmpty: Declarations['isEmpty'];
  try {
    // Loaded on demand: few devices have such files.
    const { isScalar, parseDocument } = await import('yaml');
    const document = parseDocument(text);
    const [problem] = document.errors;
    if (problem) throw problem;
    content = document.toJS();
    isEmpty = (place) => {
      const value = document.getIn(place, true);
      return isScalar(value) && value.value === null && value.source === '';
    };
  } catch (error) {
    throw new OperatorError(`nothing was changed: ${source} is not YAML: ${messageOf(error)}`, 2);
  }
  const declaration = Declaration.safeParse(content);
  if (declaration.success) return { ...declaration.data, isEmpty };
  throw new OperatorError(
    `nothing was changed: ${source} must have one member, a list called tunnels; each has forwards_to and domain`,
    2,
  );
}

/**
 * Reads all files of a folder such as `/etc/device-agent/tunnels.d`, in order of their names; a missing folder is empty.
 *
 * @throws {OperatorError} as {@link parseDeclaredTunnels}, also for a domain in two files
 */
async function readDeclaredTunnels(folder: string, rules: ImportRules): Promise<ImportedTunnel[]> {
  const tunnels = new Map<string, ImportedTunnel>();
  for (const name of await filesIn(folder)) {
    const source = join(folder, name);
    for (const tunnel of await parseDeclaredTunnels(await readFile(source, 'utf8'), source, rules)) {
      if (tunnels.has(tunnel.domain)) {
        throw new OperatorError(`nothing was changed: ${source}: another file declares ${tunnel.domain}, too`, 2);
      }
      tunnels.set(tunnel.domain, tunnel);
    }
  }
  return [...tunnels.values()];
}

/** The present tunnels that none of the declared ones is. */
export function undeclaredAmong(
  present: readonly Tunnel[],
  declared: readonly ImportedTunnel[],
  site: Site | null,
): Tunnel[] {
  const domains = new Set(declared.flatMap((tunnel) => domainsFor(tunnel, site)));
  return present.filter(({ domain }) => !domains.has(domain));
}

/** The present tunnel that a declared one is about: a label has got one of several domains. */
export function declaredAmong(
  present: readonly Tunnel[],
  declared: ImportedTunnel,
  site: Site | null,
): Tunnel | undefined {
  const domains = domainsFor(declared, site);
  return present.find(({ domain }) => domains.includes(domain));
}

/** Of the members that can differ, those that the agent can change. */
const CHANGEABLE: readonly string[] = ['forwards_to', 'policy', ...CHANGEABLE_OPTIONS];

/** The body of `PATCH /tunnels/{url_part}` that gives a tunnel the members in which a declared one differs. */
export function changeTo(declared: ImportedTunnel, differing: readonly string[]): DeclaredChange {
  const members: Readonly<Record<string, unknown>> = declared;
  return Object.fromEntries(differing.map((member) => [member, members[member] ?? null]));
}

/** What such a body makes of a stored tunnel. */
export function changedTunnel(tunnel: Tunnel, change: DeclaredChange): Tunnel {
  const members = Object.entries({ ...tunnel, ...change });
  const kept = members.filter(([member, value]) => value !== null || member === 'policy');
  return StoredTunnel.parse(Object.fromEntries(kept));
}

/** What keeps the declared tunnel from being made of the present one; null when nothing does. */
export function unchangeable(differing: readonly string[]): string | null {
  if (differing.every((member) => CHANGEABLE.includes(member))) return null;
  return `the existing tunnel has a different ${differing.join(' and ')}, which cannot be changed; delete it first`;
}

/**
 * Creates and changes the saved tunnels as the files of a folder declare them, before they are online. Deletes none. A file
 * with problems must not keep the other tunnels offline, so problems are logged.
 */
export async function applyDeclaredTunnels(
  store: TunnelStore,
  { folder, rules, log }: { folder: string; rules: ImportRules; log: Log },
): Promise<void> {
  try {
    for (const declared of await readDeclaredTunnels(folder, rules)) {
      await applyDeclared(declared, { store, site: rules.site ?? null, log });
    }
  } catch (error) {
    log.error({ folder, reason: messageOf(error) }, 'declared tunnels not applied');
  }
}

async function applyDeclared(
  declared: ImportedTunnel,
  { store, site, log }: { store: TunnelStore; site: Site | null; log: Log },
): Promise<void> {
  const { domain, forwards_to } = declared;
  const there = declaredAmong(store.list(), declared, site);
  const differing = there ? differencesBetween(there, { ...declared, domain: there.domain }) : [];
  if (there && differing.length === 0) return;
  const problem = unchangeable(differing);
  if (problem !== null) return log.warn({ domain, reason: problem }, 'declared tunnel not applied');
  await store.save(there ? changedTunnel(there, changeTo(declared, differing)) : storedTunnel(declared));
  log.info({ domain, upstream: forwards_to }, there ? 'tunnel changed as declared' : 'tunnel created as declared');
}

async function filesIn(folder: string): Promise<string[]> {
  try {
    return (await readdir(folder)).filter((name) => /^[^.].*\.(?:ya?ml|json)$/.test(name)).sort();
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return [];
    throw error;
  }
}
