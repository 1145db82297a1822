import { systemClock } from '../lib/clock.ts';
import { messageOf, OperatorError } from '../lib/errors.ts';
import type { ManagementClient } from './client.ts';
import { CnameChecker, type CnameRecord, requiredRecords } from './cname-record.ts';
import { awaitCertificate, awaitRecords } from './domain-readiness.ts';
import { ManagementError } from './management-error.ts';
import type { ProvisionOptions, Run } from './provision-run.ts';
import type { BotUser } from './resources/bot-user.ts';
import type { Credential } from './resources/credential.ts';
import { parseHostname } from './resources/hostname.ts';
import type { ReservedDomain } from './resources/reserved-domain.ts';

/** What a site of devices shall have. */
export interface ProvisionPlan {
  /** Usually a wildcard: `*.sitea.example.com`. */
  domain: string;
  /** Name of the bot user that owns the site's authtokens. */
  bot: string;
  /** Whether to wait for DNS and the certificate. Default: true. */
  wait?: boolean | undefined;
  /** Whether to replace the authtoken of an earlier run, which ends what is online with it. Default: false. */
  rotate?: boolean | undefined;
  /** Default: `rsa`. */
  privateKeyType?: 'rsa' | 'ecdsa' | undefined;
}

/** The authtoken, or what came of it. */
export type Authtoken =
  /** Its value is known now and never again. Those it was to replace that could not be deleted are still good. */
  | { kind: 'created'; id: string; token: string; notDeleted: { id: string; reason: string }[] }
  /** An earlier run made it; its value cannot be shown again. */
  | { kind: 'existing'; id: string }
  /** The service lets people make authtokens, but not programs. */
  | { kind: 'by-hand'; owner: string; acl: string };

/** What there is after {@link provision}. */
export interface Provisioned {
  domain: ReservedDomain;
  bot: BotUser;
  /** Records that the domain needs, whether or not they are in place. */
  records: CnameRecord[];
  /** `none`: the service's own certificate covers the name. */
  certificate: 'ready' | 'pending' | 'none';
  authtoken: Authtoken;
}

/** How the credentials made here are told from others of the same owner. */
const MARK = 'device-agent setup';

/**
 * A name below the service's own, or a direct subdomain of it, takes no policy of its own:
 * the service's certificate covers it.
 */
const POLICY_NOT_NEEDED = [439, 447];

const WAIT_MS = 30 * 60_000;

/**
 * Makes what a site of devices needs: a reserved domain with automatic certificates, a bot user, and an
 * authtoken that may bind names of that domain. Whatever exists already is found and kept, so a run that
 * was interrupted or timed out is simply repeated.
 *
 * @throws {ManagementError} when the service refuses or cannot be reached
 * @throws {OperatorError} exit code 2 for a domain that is no hostname and an empty name of the bot user, 1 for an inactive bot user
 * @throws {NotReadyInTime} when DNS or the certificate takes longer than allowed
 */
export async function provision(
  client: ManagementClient,
  plan: ProvisionPlan,
  options: ProvisionOptions = {},
): Promise<Provisioned> {
  const name = parseHostname(plan.domain);
  if (typeof name !== 'string') throw new OperatorError(`${plan.domain}: ${name.text}`, 2);
  // It would be found in any bot user that somebody left without a name.
  if (plan.bot.trim() === '') throw new OperatorError('the bot user needs a name', 2);
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
  // Last, for its value is shown once: a run that is interrupted while waiting must not have made it.
  const authtoken = await ensureAuthtoken(run, bot, `bind:${name}`, plan.rotate === true);
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
    // An uploaded certificate is the owner's choice; names of the service itself have no CNAME target.
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
  // Names are not unique. The oldest is taken: one that is added later must not change what a run finds.
  for await (const found of client.botUsers.all({ signal })) {
    if (found.name !== name) continue;
    if (found.active) active = found;
    else inactive = found;
  }
  if (!active && inactive) {
    throw new OperatorError(
      `the bot user ${JSON.stringify(name)} (${inactive.id}) is inactive, so its authtokens are refused: activate it or choose another name`,
    );
  }
  const bot = active ?? (await client.botUsers.create({ name }, { signal }));
  report({ step: 'bot', outcome: active ? 'found' : 'created', bot });
  return bot;
}

async function ensureAuthtoken(run: Run, bot: BotUser, rule: string, rotate: boolean): Promise<Authtoken> {
  const { client, signal } = run;
  try {
    const existing = await findCredentials(run, bot, rule);
    const [newest] = existing;
    if (newest && !rotate) return { kind: 'existing', id: newest.id };
    const body = { owner_id: bot.id, acl: [rule], description: bot.name, metadata: MARK };
    const { id, token } = await client.credentials.create(body, { signal });
    // The old ones go last: whatever fails before leaves the devices with a token that works.
    const notDeleted = await deleteAll(run, existing);
    return token === null ? { kind: 'existing', id } : { kind: 'created', id, token, notDeleted };
  } catch (error) {
    const hasNoSuchPath = error instanceof ManagementError && error.isNotFound && error.code === null;
    if (!hasNoSuchPath) throw error;
    return { kind: 'by-hand', owner: bot.id, acl: rule };
  }
}

/** @returns those that are still there: nothing may keep the value of the new authtoken from being told */
async function deleteAll(
  { client, signal }: Run,
  old: readonly Credential[],
): Promise<{ id: string; reason: string }[]> {
  const left: { id: string; reason: string }[] = [];
  for (const { id } of old) {
    try {
      await client.credentials.delete(id, { signal });
    } catch (error) {
      if (error instanceof ManagementError && error.isNotFound) continue;
      left.push({ id, reason: messageOf(error) });
    }
  }
  return left;
}

/** @returns those that earlier runs made for this bot user and rule, newest first */
async function findCredentials({ client, signal }: Run, bot: BotUser, rule: string): Promise<Credential[]> {
  const found: Credential[] = [];
  for await (const credential of client.credentials.all({ signal })) {
    const isOurs = credential.owner_id === bot.id && credential.metadata === MARK;
    if (isOurs && credential.acl?.length === 1 && credential.acl[0] === rule) found.push(credential);
  }
  return found;
}
