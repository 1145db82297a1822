import { messageOf, OperatorError } from '../lib/errors.ts';
import { type Clock, systemClock } from '../lib/time/clock.ts';
import type { ManagementClient } from './client.ts';
import { CnameChecker, type CnameRecord, requiredRecords } from './cname-record.ts';
import { ManagementError } from './management-error.ts';
import type { BotUser } from './resources/bot-user.ts';
import type { Credential } from './resources/credential.ts';
import { parseHostname } from './resources/hostname.ts';
import type { ReservedDomain } from './resources/reserved-domain.ts';

/** The resources of a site of devices. */
export interface ProvisionPlan {
  /** Usually a wildcard: `*.sitea.example.com`. */
  domain: string;
  /** Name of the bot user that owns the site's authtokens. */
  bot: string;
  /** TCP addresses that the site's tunnels may use, `host:port` or `host:first-last`. Default: none. */
  tcp?: string | undefined;
  /** Whether to wait for DNS and the certificate. Default: true. */
  wait?: boolean | undefined;
  /** Whether to replace the authtoken of an earlier run, which ends its sessions. Default: false. */
  rotate?: boolean | undefined;
  /** Default: `rsa`. */
  privateKeyType?: 'rsa' | 'ecdsa' | undefined;
}

/** The site's authtoken. */
export type Authtoken =
  /** `token` is shown only once. Old authtokens in `notDeleted` are still valid. */
  | { kind: 'created'; id: string; token: string; notDeleted: { id: string; reason: string }[] }
  /** Created by an earlier run; its value is not available again. */
  | { kind: 'existing'; id: string }
  /** The API cannot create authtokens; create it in the dashboard. */
  | { kind: 'by-hand'; owner: string; acl: string };

/** Result of {@link provision}. */
export interface Provisioned {
  domain: ReservedDomain;
  bot: BotUser;
  /** Records that the domain requires, present or not. */
  records: CnameRecord[];
  /** `none`: the gateway's own certificate covers the name. */
  certificate: 'ready' | 'pending' | 'none';
  authtoken: Authtoken;
}

/** Marks the credentials of this workflow. */
const MARK = 'device-agent setup';

/**
 * Error codes for names that the gateway's own certificate covers, which cannot have a certificate policy.
 */
const POLICY_NOT_NEEDED = [439, 447];

const WAIT_MS = 30 * 60_000;

/**
 * Creates the resources of a site of devices: a reserved domain with automatic certificates, a bot user, and an authtoken
 * that can bind names of that domain. Existing resources are reused, so an interrupted run can be repeated.
 *
 * @throws {ManagementError} when the API rejects a call or is unreachable
 * @throws {OperatorError} exit code 2 for an invalid domain or an empty bot user name, 1 for an inactive bot user
 * @throws {NotReadyInTime} when DNS or the certificate takes too long
 */
export async function provision(
  client: ManagementClient,
  plan: ProvisionPlan,
  options: ProvisionOptions = {},
): Promise<Provisioned> {
  const name = parseHostname(plan.domain);
  if (typeof name !== 'string') throw new OperatorError(`${plan.domain}: ${name.text}`, 2);
  // An empty name would match any unnamed bot user.
  if (plan.bot.trim() === '') throw new OperatorError('bot user name must not be empty', 2);
  const clock = options.clock ?? systemClock;
  const deadline = clock.now() + (options.waitMs ?? WAIT_MS);
  const run: Run = { client, clock, deadline, report: options.onProgress ?? (() => {}), signal: options.signal };

  let domain = await ensureDomain(run, name, plan.privateKeyType ?? 'rsa');
  const bot = await ensureBot(run, plan.bot);
  const records = requiredRecords(domain);
  run.report({ step: 'records', records });
  if (plan.wait !== false) {
    await awaitRecords(records, new CnameChecker(options.dnsServers), run);
    if (certificateState(domain) === 'pending') domain = await awaitCertificate(run, domain);
  }
  // Created last, as its value is shown once: an interrupted wait must not lose it.
  const acl = [`bind:${name}`, ...(plan.tcp === undefined ? [] : [`bind:${plan.tcp}`])];
  const authtoken = await ensureAuthtoken(run, bot, acl, plan.rotate === true);
  return { domain, bot, records, certificate: certificateState(domain), authtoken };
}

function certificateState(domain: ReservedDomain): Provisioned['certificate'] {
  if (domain.certificate !== null) return 'ready';
  return domain.certificate_management_policy === null ? 'none' : 'pending';
}

async function ensureDomain(run: Run, name: string, keyType: 'rsa' | 'ecdsa'): Promise<ReservedDomain> {
  const { client, report, signal } = run;
  const policy = { authority: 'letsencrypt', private_key_type: keyType } as const;
  for await (const found of client.reservedDomains.all({ signal })) {
    if (found.domain !== name) continue;
    // Keep uploaded certificates. The gateway's own names have no CNAME target.
    if (certificateState(found) !== 'none' || found.cname_target === null) {
      report({ step: 'domain', outcome: 'found', domain: found });
      return found;
    }
    const domain = await client.reservedDomains.update(found.id, { certificate_management_policy: policy }, { signal });
    report({ step: 'domain', outcome: 'updated', domain });
    return domain;
  }
  const domain = await createDomain(run, name, policy);
  report({ step: 'domain', outcome: 'created', domain });
  return domain;
}

async function createDomain(
  { client, signal }: Run,
  name: string,
  policy: { authority: 'letsencrypt'; private_key_type: 'rsa' | 'ecdsa' },
): Promise<ReservedDomain> {
  const body = { domain: name, description: MARK };
  try {
    return await client.reservedDomains.create({ ...body, certificate_management_policy: policy }, { signal });
  } catch (error) {
    const isOwn = error instanceof ManagementError && POLICY_NOT_NEEDED.some((code) => error.hasCode(code));
    if (!isOwn) throw error;
    return client.reservedDomains.create(body, { signal });
  }
}

async function ensureBot({ client, report, signal }: Run, name: string): Promise<BotUser> {
  let inactive: BotUser | null = null;
  let active: BotUser | null = null;
  // Names are not unique. The oldest is used, so that later ones do not change the result.
  for await (const found of client.botUsers.all({ signal })) {
    if (found.name !== name) continue;
    if (found.active) active = found;
    else inactive = found;
  }
  if (!active && inactive) {
    throw new OperatorError(
      `the bot user ${JSON.stringify(name)} (${inactive.id}) is inactive and its authtokens are rejected: activate it or choose another name`,
    );
  }
  const bot = active ?? (await client.botUsers.create({ name }, { signal }));
  report({ step: 'bot', outcome: active ? 'found' : 'created', bot });
  return bot;
}

async function ensureAuthtoken(run: Run, bot: BotUser, acl: string[], rotate: boolean): Promise<Authtoken> {
  const { client, signal } = run;
  try {
    const existing = await findCredentials(run, bot, acl[0] ?? '');
    const [newest] = existing;
    if (newest && !rotate) {
      await allow(run, newest, acl);
      return { kind: 'existing', id: newest.id };
    }
    const body = { owner_id: bot.id, acl, description: bot.name, metadata: MARK };
    const { id, token } = await client.credentials.create(body, { signal });
    // Old ones are deleted last, so that devices keep a valid authtoken after a failure.
    const notDeleted = await deleteAll(run, existing);
    return token === null ? { kind: 'existing', id } : { kind: 'created', id, token, notDeleted };
  } catch (error) {
    const isUnsupported = error instanceof ManagementError && error.isNotFound && error.code === null;
    if (!isUnsupported) throw error;
    return { kind: 'by-hand', owner: bot.id, acl: acl.join(', ') };
  }
}

/** Adds the missing rules, so that devices keep their authtoken. */
async function allow({ client, signal }: Run, { id, acl }: Credential, wanted: readonly string[]): Promise<void> {
  const present = acl ?? [];
  const missing = wanted.filter((rule) => !present.includes(rule));
  if (missing.length > 0) await client.credentials.update(id, { acl: [...present, ...missing] }, { signal });
}

/** @returns those that could not be deleted; never throws, so that the new authtoken is always shown */
async function deleteAll(
  { client, signal }: Run,
  old: readonly Credential[],
): Promise<{ id: string; reason: string }[]> {
  const failures: { id: string; reason: string }[] = [];
  for (const { id } of old) {
    try {
      await client.credentials.delete(id, { signal });
    } catch (error) {
      if (error instanceof ManagementError && error.isNotFound) continue;
      failures.push({ id, reason: messageOf(error) });
    }
  }
  return failures;
}

/** @returns the credentials of earlier runs for this bot user with this rule, newest first */
async function findCredentials({ client, signal }: Run, bot: BotUser, rule: string): Promise<Credential[]> {
  const found: Credential[] = [];
  for await (const credential of client.credentials.all({ signal })) {
    const isOwn = credential.owner_id === bot.id && credential.metadata === MARK;
    if (isOwn && credential.acl?.includes(rule)) found.push(credential);
  }
  return found;
}

/** Progress of provisioning, in this order. Waits are reported when their cause changes. */
export type ProvisionEvent =
  | { step: 'domain'; outcome: 'created' | 'found' | 'updated'; domain: ReservedDomain }
  | { step: 'bot'; outcome: 'created' | 'found'; bot: BotUser }
  | { step: 'records'; records: CnameRecord[] }
  | { step: 'dns'; record: CnameRecord; inPlace: boolean; found: string }
  | { step: 'certificate'; state: 'waiting' | 'failing' | 'ready'; message: string; retriesAt: string | null };

/** Options of provisioning. */
export interface ProvisionOptions {
  onProgress?: ((event: ProvisionEvent) => void) | undefined;
  /** Resolvers for checking DNS records, `ip` or `ip:port`; default: the system's. */
  dnsServers?: readonly string[] | undefined;
  /** Milliseconds to wait for DNS and the certificate together. Default: 30 minutes. */
  waitMs?: number | undefined;
  signal?: AbortSignal | undefined;
  /** For tests. */
  clock?: Clock | undefined;
}

/** Shared state of one run. */
interface Run {
  client: ManagementClient;
  report: (event: ProvisionEvent) => void;
  clock: Clock;
  /** Compared with `clock.now()`. */
  deadline: number;
  signal: AbortSignal | undefined;
}

/** Raised when the wait times out. Created resources stay; a later run continues from there. */
export class NotReadyInTime extends OperatorError {
  /** A separate exit code, so that scripts can distinguish "not yet" from a failure. */
  static readonly EXIT_CODE = 5;

  constructor(what: string) {
    super(`${what}; run the same command again to continue`, NotReadyInTime.EXIT_CODE);
  }
}

const DNS_INTERVAL_MS = 5000;
const CERTIFICATE_INTERVAL_MS = 3000;

/** Waits until all records are found. Reports changes of their state. */
async function awaitRecords(records: readonly CnameRecord[], checker: CnameChecker, run: Run): Promise<void> {
  const reported = new Map<string, string>();
  let missing = records;
  for (;;) {
    const findings = await Promise.all(missing.map(async (record) => ({ record, ...(await checker.check(record)) })));
    for (const { record, inPlace, found } of findings) {
      if (reported.get(record.name) !== found) run.report({ step: 'dns', record, inPlace, found });
      reported.set(record.name, found);
    }
    missing = findings.filter(({ inPlace }) => !inPlace).map(({ record }) => record);
    if (missing.length === 0) return;
    await pause(run, DNS_INTERVAL_MS, () => `DNS records still missing: ${missing.map(({ name }) => name).join(', ')}`);
  }
}

/** Waits until the domain has its certificate; returns the updated domain. */
async function awaitCertificate(run: Run, domain: ReservedDomain): Promise<ReservedDomain> {
  let current = await retryNow(run, domain);
  let reported = '';
  while (current.certificate === null) {
    const job = current.certificate_management_status?.provisioning_job ?? null;
    const message = job?.msg ?? 'The certificate is pending.';
    const state = job?.error_code == null ? 'waiting' : 'failing';
    if (reported !== state + message)
      run.report({ step: 'certificate', state, message, retriesAt: job?.retries_at ?? null });
    reported = state + message;
    await pause(
      run,
      CERTIFICATE_INTERVAL_MS,
      () => `the certificate for ${domain.domain} is still pending: ${message}`,
    );
    current = await run.client.reservedDomains.get(domain.id, { signal: run.signal });
  }
  run.report({ step: 'certificate', state: 'ready', message: 'The certificate is issued.', retriesAt: null });
  return current;
}

/**
 * Retries a failed DNS check at once by updating the policy. The gateway itself retries with growing delays.
 */
async function retryNow({ client, signal }: Run, { id }: ReservedDomain): Promise<ReservedDomain> {
  const domain = await client.reservedDomains.get(id, { signal });
  const job = domain.certificate_management_status?.provisioning_job;
  const policy = domain.certificate_management_policy;
  if (job?.error_code !== 'DNS_ERROR' || policy === null) return domain;
  const same = {
    authority: 'letsencrypt',
    private_key_type: policy.private_key_type === 'ecdsa' ? 'ecdsa' : 'rsa',
  } as const;
  return client.reservedDomains.update(id, { certificate_management_policy: same }, { signal });
}

async function pause({ clock, deadline, signal }: Run, ms: number, what: () => string): Promise<void> {
  if (clock.now() + ms > deadline) throw new NotReadyInTime(what());
  await clock.sleep(ms, signal);
}
