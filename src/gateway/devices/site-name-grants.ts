import { Repeats } from '../../lib/log/repeats.ts';
import { type BucketRate, TokenBuckets } from '../../lib/time/token-bucket.ts';
import { isPermitted as isAllowedBy } from '../../management/resources/acl-rule.ts';
import type { Refusal } from '../../management/resources/refusal.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import { coveringNames } from '../endpoints/domain-names.ts';
import type { LiveEndpoint } from '../endpoints/live-view.ts';
import { type DeviceRow, isOfRules } from '../store/devices.ts';
import type { Store } from '../store/store.ts';
import { addedRules, isOwnLabel, nameProblem, ownNameProblem } from './device-names.ts';

/** Names that one device gets without the operator. */
export const MAX_GRANTED = 20;
/** Names of devices that are kept at one site, and as many of rules. A site that is full of either keeps no more of those. */
const MAX_AT_SITE = 50_000;
/** New names that are kept for an authtoken by its rules: those of a whole session at once, then a thousand a day. */
const KEPT: BucketRate = { burst: 10_000, perMs: 1_000 / 86_400_000 };
/** The code for a name that the authtoken's rules do not allow. Agents take a name of their device instead. */
const NOT_ALLOWED = 316;

/**
 * Decides who may use names directly below sites of devices, such as `camera.sitea.example.com`. The first device that
 * asks for one gets it for good. A name that another authtoken has bound by its rules is never granted.
 */
export class SiteNameGrants {
  /** Asked for every endpoint, of which an agent may bind hundreds in a row. */
  readonly #isSite: (domain: string) => boolean;
  readonly #failures = new Repeats();
  readonly #kept: TokenBuckets;

  constructor(
    private readonly context: Pick<GatewayContext, 'store' | 'log'>,
    private readonly own: {
      /** Whether an endpoint of another authtoken is online at exactly this name or wildcard. */
      isOnlineElsewhere: (hostname: string, credentialId: string) => boolean;
      /** Why nobody can bind a name; null when somebody can. */
      refuseName: (hostname: string) => Refusal | null;
    },
    kept = KEPT,
  ) {
    this.#kept = new TokenBuckets(kept);
    const { database, siteNames } = context.store;
    this.#isSite = database.untilCommit((domain) => siteNames.isSite(domain));
  }

  /**
   * Decides about a name that an agent asks for; `isPermitted`: whether the rules of its authtoken allow it.
   * @returns why it cannot have it; `grantable`: its device can, whatever the rules say; null: the rules decide
   */
  judge(credentialId: string, hostname: string, isPermitted: boolean): Refusal | 'grantable' | null {
    return this.#judge(this.context.store.devices.ofAuthtoken(credentialId), credentialId, hostname, isPermitted);
  }

  #judge(
    device: DeviceRow | null,
    credentialId: string,
    hostname: string,
    isPermitted: boolean,
  ): Refusal | 'grantable' | null {
    if (device === null || siteOf(hostname) !== device.site || hostname.startsWith('*.')) return null;
    if (isPermitted) return this.#refusalOfOwn(device, hostname);
    if (this.context.store.siteNames.isHeldBy(hostname, credentialId)) return null;
    return this.#refusalOf(device, credentialId, hostname) ?? 'grantable';
  }

  /**
   * Keeps a name for the agent that has just bound it: for its device, or, where rules allow it, from all devices.
   * @returns why a device cannot have it: another one was faster
   */
  async keep(credentialId: string, hostname: string, isPermitted: boolean): Promise<Refusal | null> {
    const { store, log } = this.context;
    const device = store.devices.ofAuthtoken(credentialId);
    if (isPermitted) {
      if (device === null || !isOwnName(device, hostname)) await this.#keepForRules(credentialId, device, hostname);
      return null;
    }
    if (this.judge(credentialId, hostname, false) !== 'grantable') return null;
    const refused = await store.database.write(() => {
      // It may have changed meanwhile, also by a write before this one in the same transaction.
      const holder = store.devices.byCredential(credentialId);
      const verdict = this.#judge(holder, credentialId, hostname, false);
      if (verdict !== 'grantable') return verdict;
      if (holder) store.siteNames.put({ hostname, device_id: holder.id, released_from: null });
      return null;
    });
    if (refused === null) log.info({ device: device?.id, domain: hostname }, 'name granted to a device');
    return refused;
  }

  /** Rules that an operator has added to those of a device come before all others. */
  #refusalOfOwn(device: DeviceRow, hostname: string): Refusal | null {
    if (!isOwnName(device, hostname)) return null;
    const { store } = this.context;
    const credential = device.credential_id === null ? null : store.credentials.get(device.credential_id);
    if (credential === null || credential.acl.length === 0) return null;
    const added = addedRules(credential, device, '');
    if (added.length > 0 && isAllowedBy(added, { kind: 'hostname', hostname })) return null;
    const problem = ownNameProblem(store, device, labelOf(hostname));
    return problem === null ? null : { code: NOT_ALLOWED, text: `${hostname} ${problem}` };
  }

  #refusalOf(device: DeviceRow, credentialId: string, hostname: string): Refusal | null {
    const { store } = this.context;
    const { isOnlineElsewhere, refuseName } = this.own;
    const refuse = (why: string): Refusal => ({ code: NOT_ALLOWED, text: `${hostname} ${why}` });
    if (device.own_names_only) {
      return refuse(`is not allowed: this device only gets names that end in -${device.name}.${device.site}`);
    }
    const problem = nameProblem(store, device, labelOf(hostname));
    if (problem !== null) return refuse(problem);
    const [own] = store.siteNames.among([hostname]);
    if (own?.released_from === device.id) return refuse('was taken from this device by the operator of the gateway');
    const serving = coveringNames(hostname);
    const isKept = store.siteNames.among(serving).some(isOfRules);
    if (isKept || serving.some((name) => isOnlineElsewhere(name, credentialId)))
      return refuse('belongs to another authtoken');
    const unusable = refuseName(hostname);
    if (unusable !== null) return refuse(`cannot be used: ${unusable.text}`);
    if (store.siteNames.labelsOf(device.id).length >= MAX_GRANTED) {
      return refuse(`is not granted: this device has ${MAX_GRANTED} such names; ask the operator to release one`);
    }
    return store.siteNames.countAt(device.site, 'devices') < MAX_AT_SITE
      ? null
      : refuse('is not granted: the site has too many names');
  }

  /** Keeps a name that rules allow from all devices, also while nobody uses it. A device that holds it loses it. */
  async #keepForRules(credentialId: string, device: DeviceRow | null, hostname: string): Promise<void> {
    const { store, log } = this.context;
    const { isOnlineElsewhere } = this.own;
    if (!this.#isBelowSite(hostname)) return;
    const known = store.siteNames.get(hostname);
    const isKept = known !== null && (isOfRules(known) || (device !== null && known.device_id === device.id));
    // A device shares it then, in a pool.
    if (isKept || isOnlineElsewhere(hostname, credentialId)) return;
    try {
      const now = performance.now();
      if (!this.#kept.of(credentialId, now).tryTake(now)) throw new Error('its authtoken has too many new names');
      if (!(await store.database.write(() => keepForRules(store, hostname))))
        throw new Error('the site has too many names');
      if (known?.device_id)
        log.warn({ device: known.device_id, domain: hostname }, 'name of a device taken by another authtoken');
    } catch (error) {
      // The operator's agent comes online all the same; the next time, it is tried again.
      const times = this.#failures.timesDue('name');
      if (times !== null)
        log.error({ err: error, domain: hostname, credential: credentialId, times }, 'name not kept from devices');
    }
  }

  /** Whether a name, or a wildcard with a site below it, matters to devices. */
  #isBelowSite(hostname: string): boolean {
    const parent = siteOf(hostname);
    return hostname.startsWith('*.') ? this.context.store.siteNames.hasSiteAtOrBelow(parent) : this.#isSite(parent);
  }
}

/**
 * Keeps the names that are online at a site from its devices; call it in a transaction when the first one joins. Names of cloud
 * endpoints are left out: nobody can bind those, and a wildcard is for the names that no device has bound.
 */
export function keepNamesOnline(
  store: Store,
  site: string,
  online: readonly Pick<LiveEndpoint, 'host' | 'type'>[],
): void {
  for (const host of new Set(online.filter(({ type }) => type !== 'cloud').map((endpoint) => endpoint.host))) {
    const isAbove = host.startsWith('*.') && site.endsWith(host.slice('*'.length));
    if (siteOf(host) === site || isAbove) keepForRules(store, host);
  }
}

/** @returns false when the site has too many */
function keepForRules(store: Store, hostname: string): boolean {
  const { siteNames } = store;
  if (siteNames.get(hostname) === null && siteNames.countAt(siteOf(hostname), 'rules') >= MAX_AT_SITE) return false;
  siteNames.put({ hostname, device_id: null, released_from: null });
  return true;
}

function isOwnName(device: DeviceRow, hostname: string): boolean {
  return siteOf(hostname) === device.site && isOwnLabel(device, labelOf(hostname));
}

function labelOf(hostname: string): string {
  return hostname.slice(0, hostname.indexOf('.'));
}

function siteOf(hostname: string): string {
  return hostname.slice(hostname.indexOf('.') + 1);
}
