import { createHmac } from 'node:crypto';
import type { z } from 'zod';
import { ApiError, type ApiErrorOptions } from '../../lib/errors.ts';
import { createToken, parseToken } from '../../lib/ids.ts';
import { type RateLimit, RequestRate } from '../../lib/time/token-bucket.ts';
import { deviceName } from '../../management/resources/device.ts';
import type { Enrolment, EnrolmentRequest } from '../../management/resources/enrolment.ts';
import type { LiveView, Revocation } from '../endpoints/live-view.ts';
import { BY_DEVICE } from '../store/audit-log.ts';
import type { DeviceEvent, DeviceRow, EnrolmentKeyRow } from '../store/devices.ts';
import type { Store } from '../store/store.ts';
import { hashSecret, issueCredential, secretMatches } from '../store/tokens.ts';
import { addedRules, changedRules, deviceDomain, deviceRules, freeName, isEndOfTaken } from './device-names.ts';
import type { GatewayPlace } from './invite.ts';
import { keepNamesOnline } from './site-name-grants.ts';

type Request = z.output<typeof EnrolmentRequest>;

/** How soon a device asks again whether it was approved. */
const RETRY_AFTER_S = 5;
/** Steps kept for each device, the first and the last ones: a device that joins in a loop must not fill the disk. */
const MAX_HISTORY = 50;
const FIRST_STEPS = 10;
/** What one device may send; one that waits for its approval asks every {@link RETRY_AFTER_S}. */
const OF_DEVICE: RateLimit = { requests: 30, windowMs: 90_000 };
/** Devices of one key that wait for approval, and all of a site: each that joins is compared with the others, 36 ms for so many. */
const MAX_WAITING = 1_000;
const MAX_AT_SITE = 20_000;
/** Seconds after which a device may ask again when there are too many: somebody has to make room first. */
const FULL_RETRY_S = 600;
/** Devices that may join with one key: a fleet can be switched on at once, but nobody can fill the disk with devices. */
const WITH_KEY: RateLimit = { requests: 1200, windowMs: 60_000 };

export class Enrolments {
  readonly #ofDevice: RequestRate;
  readonly #withKey: RequestRate;

  /** @param now milliseconds that only grow */
  constructor(
    private readonly store: Store,
    private readonly live: Pick<LiveView, 'revoke' | 'endpoints'>,
    private readonly place: GatewayPlace,
    now: () => number,
  ) {
    this.#ofDevice = new RequestRate(OF_DEVICE, now);
    this.#withKey = new RequestRate(WITH_KEY, now);
  }

  /**
   * Enrols a device. The same install key always gets the same device and authtoken, so it can repeat the request after a
   * power cut.
   * @param from its address @throws {EnrolmentError} when the secret is unusable, the device was revoked, or a limit is
   * reached
   */
  async enrol(request: Request, from: string): Promise<{ answer: Enrolment; isRepeated: boolean }> {
    const known = this.#known(request.install_key);
    if (known) requireRate(this.#ofDevice, known.id, `the device ${known.name} asks too often`);
    // A transaction may run again.
    else requireRate(this.#withKey, this.#keyFor(request.secret ?? '').id, 'too many devices join with this code');
    const { revoked, ...enrolled } = await this.store.database.write(() => this.#enrol(request, from), {
      by: BY_DEVICE,
      from,
    });
    if (revoked) await this.live.revoke(revoked);
    return enrolled;
  }

  #enrol(request: Request, from: string): { answer: Enrolment; isRepeated: boolean; revoked: Revocation | null } {
    const { store } = this;
    const known = this.#known(request.install_key);
    const device = known === null ? this.#create(request, from) : this.#atSiteOf(known, request.secret ?? '', from);
    const isRepeated = known !== null;
    const left = device.site === known?.site ? null : (known?.credential_id ?? null);
    const leaves = left === null ? null : { credentialIds: [left] };
    if (device.status === 'pending') return { answer: this.#answer(device, null), isRepeated, revoked: leaves };
    const { credential_id: before, generation } = device;
    const random = authtokenBytes(request.install_key, generation);
    const isCurrent = before !== null && device.issued_generation === generation;
    const keepsName = request.keep_name === true;
    if (isCurrent && keepsName) {
      return { answer: this.#answer(device, createTokenOf(before, random).token), isRepeated, revoked: null };
    }
    const { id, token } = isCurrent ? createTokenOf(before, random) : this.#issue(device, random);
    const kept_rules = isCurrent ? device.kept_rules : [];
    const next = withEvent(
      {
        ...device,
        credential_id: id,
        issued_generation: generation,
        kept_rules,
        old_name: keepsName ? device.old_name : null,
      },
      { at: store.now(), what: stepOf(device, keepsName), by: from },
    );
    store.devices.update(next);
    const answer = this.#answer(next, token);
    if (isCurrent) return { answer, isRepeated, revoked: this.#dropOldName(device, next) };
    if (before !== null) store.credentials.delete(before);
    return { answer, isRepeated, revoked: before === null ? leaves : { credentialIds: [before] } };
  }

  /** Forgets a device that leaves; null for an unknown key. @throws {EnrolmentError} if it was revoked: it could rejoin */
  async leave(installKey: string, from: string): Promise<DeviceRow | null> {
    const { store } = this;
    if (this.#known(installKey) === null) return null;
    const device = await store.database.write(
      () => {
        const row = this.#known(installKey);
        if (row === null) return null;
        if (row.credential_id !== null) store.credentials.delete(row.credential_id);
        store.devices.delete(row.id);
        return row;
      },
      { by: BY_DEVICE, from },
    );
    if (device?.credential_id) await this.live.revoke({ credentialIds: [device.credential_id] });
    return device;
  }

  #known(installKey: string): DeviceRow | null {
    const device = this.store.devices.byInstallation(hashSecret(installKey));
    if (device?.status !== 'revoked') return device;
    throw new EnrolmentError(
      'ERR_GATEWAY_DEVICE_REVOKED',
      `the device ${device.name} was revoked: delete it on the gateway, then join with a new code`,
    );
  }

  #create(request: Request, from: string): DeviceRow {
    const { store } = this;
    const key = this.#keyFor(request.secret ?? '');
    this.#requireRoom(key);
    const inUse = store.devices.namesAt(key.site);
    if (inUse.length === 0) keepNamesOnline(store, key.site, this.live.endpoints());
    const isEnd = (name: string) => isEndOfTaken(store, key.site, name);
    store.enrolmentKeys.update({ ...key, uses: key.uses + 1 });
    const now = store.now();
    const isPending = key.needs_approval;
    const row = store.devices.newRow({
      id: store.ids.next('dev'),
      created_at: now,
      name: freeName(deviceName(request.name ?? ''), inUse, isEnd),
      site: key.site,
      owner_id: key.owner_id,
      enrolment_key_id: key.id,
      install_hash: hashSecret(request.install_key),
      generation: 1,
      issued_generation: 0,
      status: isPending ? 'pending' : 'enrolled',
      tcp_ports: key.tcp_ports,
      own_names_only: key.own_names_only,
      internal_names: key.internal_names,
      kept_rules: [],
      labels: key.labels,
      online: false,
      history: isPending ? [{ at: now, what: 'requested', by: from }] : [],
    });
    store.devices.insert(row);
    return row;
  }

  /** Moves a device that joins with a code for another site: what it may have there comes from that code. */
  #atSiteOf(device: DeviceRow, secret: string, from: string): DeviceRow {
    const { store } = this;
    const parts = parseToken(secret);
    const site = parts === null ? undefined : store.enrolmentKeys.get(`ek_${parts.ksuid}`)?.site;
    if (site === undefined || site === device.site) return device;
    const key = this.#keyFor(secret);
    this.#requireRoom(key);
    const inUse = store.devices.namesAt(site);
    if (inUse.length === 0) keepNamesOnline(store, site, this.live.endpoints());
    if (device.credential_id !== null) store.credentials.delete(device.credential_id);
    store.siteNames.freeAllOf(device.id);
    store.enrolmentKeys.update({ ...key, uses: key.uses + 1 });
    const moved = withEvent(
      {
        ...device,
        site,
        name: freeName(device.name, inUse, (name) => isEndOfTaken(store, site, name)),
        ...{ owner_id: key.owner_id, enrolment_key_id: key.id },
        ...{ tcp_ports: key.tcp_ports, own_names_only: key.own_names_only, internal_names: key.internal_names },
        ...{ status: key.needs_approval ? 'pending' : 'enrolled', generation: device.generation + 1 },
        ...{ credential_id: null, former_credential_id: device.credential_id ?? device.former_credential_id },
        ...{ kept_rules: [], old_name: null },
      },
      { at: store.now(), what: 'moved', by: from },
    );
    store.devices.update(moved);
    return moved;
  }

  /** A code may get into wrong hands. */
  #requireRoom({ id, site, needs_approval: waits }: EnrolmentKeyRow): void {
    const { devices } = this.store;
    const waiting = waits ? devices.count("enrolment_key_id = ? AND status = 'pending'", [id]) : 0;
    const full =
      waiting >= MAX_WAITING
        ? `${MAX_WAITING} devices with this code wait for approval`
        : devices.count('site = ?', [site]) >= MAX_AT_SITE && `the site ${site} has ${MAX_AT_SITE} devices`;
    if (!full) return;
    const text = `${full}, which is the maximum: the operator has to delete some`;
    throw new EnrolmentError('ERR_GATEWAY_TOO_MANY_ENROLMENTS', text, { retryAfter: FULL_RETRY_S });
  }

  #keyFor(secret: string): EnrolmentKeyRow {
    const { store } = this;
    const parts = parseToken(secret);
    const key = parts && store.enrolmentKeys.get(`ek_${parts.ksuid}`);
    const isOwned = key !== null && store.botUsers.isActive(key.owner_id);
    if (!parts || !isOwned || !secretMatches(parts.secret, key.secret_hash)) {
      throw new EnrolmentError('ERR_GATEWAY_CODE_UNKNOWN', 'unknown code: make a new one with `gateway invite`');
    }
    if (key.revoked_at !== null) {
      throw new EnrolmentError(
        'ERR_GATEWAY_CODE_REVOKED',
        'the code was revoked: make a new one with `gateway invite`',
      );
    }
    if (key.expires_at !== null && key.expires_at <= store.now()) {
      throw new EnrolmentError(
        'ERR_GATEWAY_CODE_EXPIRED',
        `the code expired at ${key.expires_at}: make a new one with \`gateway invite\``,
      );
    }
    if (key.max_uses !== null && key.uses >= key.max_uses) {
      throw new EnrolmentError(
        'ERR_GATEWAY_CODE_USED_UP',
        `the code was for ${key.max_uses} device${key.max_uses === 1 ? '' : 's'}, which have all joined: make a new one with \`gateway invite\``,
      );
    }
    return key;
  }

  #issue(device: DeviceRow, random: Buffer): { id: string; token: string } {
    const { store, place } = this;
    const before = device.credential_id === null ? null : store.credentials.get(device.credential_id);
    const added = before ? addedRules(before, device, place.tcpHost) : device.kept_rules;
    const acl = [...deviceRules(device, place.tcpHost), ...added];
    const { row, token } = issueCredential(
      store,
      { description: `device ${device.name}`, owner_id: device.owner_id, acl },
      random,
    );
    return { id: row.id, token };
  }

  /** The device knows its new name now, so it needs the old one no longer. */
  #dropOldName(before: DeviceRow, { credential_id, ...device }: DeviceRow): Revocation | null {
    const credential = credential_id === null ? null : this.store.credentials.get(credential_id);
    if (before.old_name === null || !credential) return null;
    const acl = changedRules(credential, before, device, this.place.tcpHost);
    this.store.credentials.update({ ...credential, acl });
    return { narrowedId: credential.id };
  }

  #answer(device: DeviceRow, authtoken: string | null): Enrolment {
    const { sessionAddress, sessionAddresses, publicNames } = this.place;
    const isPending = authtoken === null;
    return {
      status: isPending ? 'pending' : 'enrolled',
      device_id: device.id,
      name: device.name,
      site: device.site,
      domain: deviceDomain(device),
      authtoken,
      session_address: sessionAddress,
      ...(sessionAddresses.length > 0 && { session_addresses: [...sessionAddresses] }),
      session_ca: publicNames === 'all' ? 'public' : 'gateway',
      connector: 'native',
      retry_after_s: isPending ? RETRY_AFTER_S : null,
    };
  }
}

function stepOf({ issued_generation }: DeviceRow, keepsName: boolean): DeviceEvent['what'] {
  if (issued_generation === 0) return 'enrolled';
  return keepsName ? 'renewed' : 'joined again';
}

function createTokenOf(id: string, random: Buffer): { id: string; token: string } {
  return { id, token: createToken(id, random).token };
}

export function withEvent(device: DeviceRow, event: DeviceEvent): DeviceRow {
  const [first, last] = [device.history.slice(0, FIRST_STEPS), device.history.slice(FIRST_STEPS)];
  return { ...device, history: [...first, ...[...last, event].slice(FIRST_STEPS - MAX_HISTORY)] };
}

function requireRate(rate: RequestRate, client: string, problem: string): void {
  const retryAfter = rate.take(client);
  if (retryAfter === null) return;
  throw new EnrolmentError('ERR_GATEWAY_TOO_MANY_ENROLMENTS', `${problem}: wait ${retryAfter} s`, { retryAfter });
}

/** The install key is random and secret, and so is what is derived from it: the gateway need not store the authtoken. */
function authtokenBytes(installKey: string, generation: number): Buffer {
  return createHmac('sha256', installKey).update(`authtoken ${generation}`).digest().subarray(0, 16);
}

/** HTTP status by error code of an enrolment. Codes are never reused. */
const STATUS = {
  ERR_GATEWAY_CODE_UNKNOWN: 403,
  ERR_GATEWAY_CODE_REVOKED: 403,
  ERR_GATEWAY_CODE_EXPIRED: 403,
  ERR_GATEWAY_CODE_USED_UP: 403,
  ERR_GATEWAY_DEVICE_REVOKED: 403,
  ERR_GATEWAY_TOO_MANY_ENROLMENTS: 429,
} as const;

export class EnrolmentError extends ApiError {
  constructor(code: keyof typeof STATUS, message: string, options?: ApiErrorOptions) {
    super(STATUS[code], code, message, options);
  }
}
