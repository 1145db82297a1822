import { createHash, type X509Certificate } from 'node:crypto';
import { rootCertificates } from 'node:tls';
import { hasErrno, OperatorError } from '../../lib/errors.ts';
import type { ProxyRules } from '../../lib/network/proxy-rules.ts';
import { caKeyDigest, certificatesIn } from '../../lib/tls/pinned-chain.ts';
import { pinnedPem, type TrustedCas, trustedPem } from '../../lib/tls/tls-options.ts';
import { isOfUnknownCa } from '../../lib/tls/tls-probe.ts';
import { type FetchOptions, fetchTrusting } from '../../management/fetch-trusting.ts';
import { type JoinCode, parseJoinCode } from '../../management/join-code.ts';
import { CA_PATH, ENROLMENTS_PATH, Enrolment } from '../../management/resources/enrolment.ts';
import {
  AGENT_SHARE_LINKS_LIST_PATH,
  AGENT_SHARE_LINKS_PATH,
  AGENT_SHARE_LINKS_REVOKE_PATH,
  AgentShareLinks,
  ShareLink,
  type ShareLinkCreate,
} from '../../management/resources/share-link.ts';
import type { OwnCa } from '../../settings/learned-cas.ts';
import type { GatewayTime } from './gateway-time.ts';
import { readInstallation } from './installation.ts';
import type { TimePlace } from './pinned-time.ts';

/** The gateway refused the device. */
export class EnrolmentRefused extends OperatorError {
  /** @param code the gateway's; null when it gave none */
  constructor(
    readonly reason: string,
    readonly code: string | null,
  ) {
    super(code === null ? reason : `${reason} (${code})`);
  }
}

/** A gateway answers, with the CA of the code, but its certificate is of another one. */
export class Distrusted extends Error {
  constructor(origin: string, cause: unknown) {
    super(
      `the certificate of ${origin} is not signed by the CA of the code, which it shows all the same: somebody intercepts the ` +
        'connection, or its names got certificates of a public CA, and the gateway is too old to show both. Update the gateway, ' +
        'or make a new code with `gateway invite`',
      { cause },
    );
  }
}

/** A gateway's answer. */
export interface GatewayAnswer {
  /** Null without a body. */
  json: unknown;
  /** PEM of the gateway's own CA; null when the code has no pin, because public CAs sign all certificates. */
  caPem: string | null;
  /** Whom to trust at the gateway's API. */
  trust: Trust;
}

/** How a gateway is reached, and who proves the time when this machine's clock is wrong. */
export interface Reaching {
  proxies: ProxyRules;
  /** Left out: nobody. */
  time?: GatewayTime | undefined;
  /** The gateway's own CA as the agent has it; left out: the CA of the code. */
  ownCa?: OwnCa | null;
}

const CALL_MS = 20_000;
/** Of an answer: it may come from somebody else, who must not fill the memory. */
const MAX_BYTES = 64 * 1024;

/** Statuses after which another attempt can succeed. */
const isTemporary = (status: number) => status === 429 || status >= 500;

/**
 * Posts to the gateway of a code, once its certificate has been verified with the code's pin. No secret is sent before.
 *
 * @param path below the origin of the code
 * @throws {EnrolmentRefused} when the gateway refuses; {OperatorError} when its CA is another one than the code's; any
 *   other error when another attempt can succeed
 */
export async function postVerified(
  code: JoinCode,
  path: string,
  body: object,
  reaching: Reaching,
): Promise<GatewayAnswer> {
  const caPem = await pinnedCa(code, code.pin, reaching);
  const postTrusting = async (ca: string | null, roots: readonly string[] = []) => {
    const trust = trustOf(code, ca, reaching, roots);
    return { json: await post(code.origin, path, body, trust), caPem: ca, trust };
  };
  const withRoots = async (ca: string, error: unknown) => {
    if (!isOfUnknownCa(error)) throw error;
    const roots = await provedRoots(code, ca, reaching);
    if (roots.length === 0) throw error;
    return postTrusting(ca, roots);
  };
  try {
    return await postTrusting(caPem);
  } catch (error) {
    if (!isOfUnknownCa(error)) throw error;
    // Public CAs sign the gateway's certificates no longer: its own does, by which it has proved the time until now.
    const ca = caPem ?? (await pinnedCa(code, code.timePin ?? null, reaching));
    if (ca === null) throw error;
    const again = caPem === null ? postTrusting(ca) : Promise.reject(error);
    return again
      .catch((reason: unknown) => withRoots(ca, reason))
      .catch((reason: unknown) => {
        throw caPem !== null && isOfUnknownCa(reason) ? new Distrusted(code.origin, reason) : reason;
      });
  }
}

/**
 * The roots of a private CA that signs the name of the API, where that is not the gateway's: it proves them as it does the time. None
 * are kept, so that the device follows when they change.
 */
async function provedRoots({ origin }: JoinCode, caPem: string, { proxies }: Reaching): Promise<readonly string[]> {
  const { askForTime } = await import('./pinned-time.ts');
  const pinned = certificatesIn(caPem);
  return askForTime({ origin, proxies, pinned }).then(
    ({ roots }) => roots,
    () => [], // An earlier gateway, or somebody else.
  );
}

/**
 * Fetches the CA of a gateway whose certificates public CAs sign: it signs times only.
 *
 * @returns PEM; null when the gateway does not answer with it
 */
export async function fetchTimeCa(code: JoinCode, reaching: Reaching): Promise<string | null> {
  const answer = await call(code, CA_PATH, trustOf(code, null, reaching)).catch(() => null);
  if (answer?.status !== 200) return null;
  if (code.timePin) return pinnedIn(answer.text, code.timePin);
  return certificatesIn(answer.text)[0]?.toString() ?? null;
}

/**
 * Posts to a gateway whose certificate the given CA has signed, or else a public one.
 *
 * @returns the JSON of the answer; null without a body
 * @throws {EnrolmentRefused} when the gateway refuses; any other error when another attempt can succeed
 */
async function post(origin: string, path: string, body: object, trust: Trust): Promise<unknown> {
  const { status, text } = await call({ origin }, path, trust, JSON.stringify(body));
  if (isTemporary(status)) throw new Error(`it answered with status ${status}`);
  const json: unknown = text === '' ? null : JSON.parse(text);
  if (![200, 201, 204].includes(status)) throw refusalIn(json, status);
  return json;
}

function refusalIn(json: unknown, status: number): EnrolmentRefused {
  const { msg, error_code: code } = (json ?? {}) as { msg?: unknown; error_code?: unknown };
  if (typeof msg !== 'string') return new EnrolmentRefused(`the gateway answered with status ${status}`, null);
  return new EnrolmentRefused(msg, typeof code === 'string' ? code : null);
}

/** PEM of the CA with a pin, and what the agent has learned since: then there is nothing to ask for. */
async function pinnedCa(code: JoinCode, pin: Buffer | null, reaching: Reaching): Promise<string | null> {
  return pin === null ? null : (knownCa(code, reaching) ?? (await fetchCa(code, pin, reaching)));
}

/** The CAs that the agent trusts, if the CA in its settings is that of the code. */
function knownCa({ pin, timePin, nextPin }: JoinCode, { ownCa = null }: Reaching): string | null {
  const pins = [pin, timePin, nextPin].filter((each) => each != null);
  const configured = ownCa === null ? [] : certificatesIn(ownCa.configured);
  const isSame = configured.some(({ raw }) => pins.some((each) => sha256(raw).equals(each)));
  return ownCa !== null && isSame ? Buffer.from(ownCa.pem).toString() : null;
}

/** Fetches the gateway's CA over a connection that nobody has verified yet, and compares it with the code's pin. */
async function fetchCa(code: JoinCode, pin: Buffer, { proxies }: Reaching): Promise<string> {
  const { status, text } = await call(code, CA_PATH, { isUnverified: true, proxies });
  if (isTemporary(status)) throw new Error(`it answered with status ${status}`);
  const pem = pinnedIn(text, pin) ?? (code.nextPin ? pinnedIn(text, code.nextPin) : null);
  if (pem !== null) return pem;
  throw new OperatorError(
    `the CA of ${code.origin} is not the one of the code: somebody intercepts the connection, or the gateway has a new CA. ` +
      'Nothing was sent; make a new code with `gateway invite` and compare',
  );
}

/**
 * The certificate with a pin among those that a gateway shows, which nobody has verified. Before it comes the same CA as it was
 * renewed since, with the same key: only who has that can have signed it.
 */
function pinnedIn(text: string, pin: Buffer): string | null {
  const shown = certificatesIn(text);
  const pinned = shown.find(({ raw }) => sha256(raw).equals(pin));
  if (pinned === undefined) return null;
  const isRenewed = (one: X509Certificate) =>
    one.ca &&
    caKeyDigest(one) === caKeyDigest(pinned) &&
    one.verify(pinned.publicKey) &&
    Date.parse(one.validTo) > Date.parse(pinned.validTo);
  const renewed = shown.filter(isRenewed).sort((a, b) => Date.parse(b.validTo) - Date.parse(a.validTo));
  return [...renewed.slice(0, 1), pinned].map(String).join('');
}

function sha256(bytes: Uint8Array): Buffer {
  return createHash('sha256').update(bytes).digest();
}

/** A public CA signs the API's certificate where the code says so, once it has been issued. */
function trustOf(code: JoinCode, caPem: string | null, reaching: Reaching, roots: readonly string[] = []): Trust {
  const { origin, isPublic, pin, timePin } = code;
  const { proxies, time } = reaching;
  const known = knownCa(code, reaching);
  const pinned = known === null ? (pin ?? timePin ?? null) : certificatesIn(known);
  const proving = time && pinned && { time: time.at(async () => ({ origin, proxies, pinned })) };
  if (caPem === null) return { proxies, ...proving };
  const cas = [caPem, ...roots, ...(isPublic ? rootCertificates : [])];
  return { proxies, ...proving, ca: cas.join('\n'), pinned: caPem };
}

async function call(
  { origin }: Pick<JoinCode, 'origin'>,
  path: string,
  options: Pick<FetchOptions, 'ca' | 'pinned' | 'address' | 'isUnverified' | 'time'> & { proxies: ProxyRules },
  body?: string,
): Promise<{ status: number; text: string }> {
  const answer = await fetchTrusting({ ...options, maxBytes: MAX_BYTES })(origin + path, {
    method: body === undefined ? 'GET' : 'POST',
    headers: body === undefined ? {} : { 'content-type': 'application/json' },
    redirect: 'manual',
    signal: AbortSignal.timeout(CALL_MS),
    ...(body !== undefined && { body }),
  });
  return { status: answer.status, text: await answer.text() };
}

/**
 * Fetches the present authtoken of a device that has joined. It keeps its names, which its settings have.
 *
 * @returns the authtoken, and where it is for (`host:port`, all that lead to the gateway); null when there is none
 * @throws {OperatorError} when the gateway refuses the device, or the file is damaged; any other error when another
 *   attempt can succeed
 */
export async function fetchAuthtoken(
  file: string,
  reaching: Reaching,
): Promise<{
  name: string;
  authtoken: string;
  sessionAddresses: readonly (string | null)[];
  trust: Trust;
} | null> {
  const installation = await readInstallation(file);
  const code = installation?.device ? parseJoinCode(installation.code) : null;
  if (!installation || !code) return null;
  const body = { install_key: installation.install_key, keep_name: true };
  const { json, trust } = await postVerified(code, ENROLMENTS_PATH, body, reaching);
  const { name, authtoken, session_address, session_addresses = [] } = Enrolment.parse(json);
  const sessionAddresses = [session_address, ...session_addresses];
  return authtoken === null ? null : { name, authtoken, sessionAddresses, trust };
}

/** How an agent reaches the management API of its gateway. */
export interface ApiAccess extends Reaching {
  authtoken: () => string;
  /** Where its sessions connect to, `host:port`. */
  serverAddr: string | null;
  authorities: TrustedCas | null;
  /** File of the enrolment of a device that has joined; it may be missing. Null: the gateway is embedded. */
  enrolment: string | null;
  /** Of an embedded gateway; null: the gateway is elsewhere. */
  apiUrl: string | null;
}

/** Where the management API of a gateway is, and whom to trust there. */
export interface ApiPlace {
  origin: string;
  trust: Trust;
  /** Whether the device has joined this gateway. */
  isJoined: boolean;
  /** The authtoken of the device, read once the place is known: it goes to no other gateway. */
  authtoken: string;
}

type Trust = Pick<FetchOptions, 'ca' | 'pinned' | 'address' | 'time'> & { proxies: ProxyRules };

/**
 * Finds the management API of an agent's gateway.
 *
 * @throws {OperatorError} when it is not known where the API is; any other error when another attempt can succeed
 */
export async function apiOf(access: ApiAccess): Promise<ApiPlace> {
  const { serverAddr, authorities, proxies, time, enrolment, apiUrl } = access;
  const code = enrolment === null ? null : await joinedCode(enrolment);
  if (enrolment !== null && code !== null) {
    const joined = await fetchAuthtoken(enrolment, access);
    // The settings may name another gateway by now.
    if (joined?.sessionAddresses.includes(serverAddr)) {
      const { trust } = joined;
      return { origin: code.origin, trust, isJoined: true, authtoken: access.authtoken() };
    }
  }
  const pinned = authorities && pinnedPem(authorities);
  const proving = time && pinned && { time: time.at(() => timePlace({ ...access, pinned })) };
  const trust = { ...(authorities && { ca: trustedPem(authorities), pinned: pinned ?? '' }), proxies, ...proving };
  const { origin, ...beside } = apiUrl === null ? apiBeside(serverAddr ?? '') : { origin: apiUrl };
  return { origin, trust: { ...trust, ...beside }, isJoined: false, authtoken: access.authtoken() };
}

/**
 * Where the gateway of an agent proves the time.
 *
 * @param pinned PEM of the CA that has to have certified its key
 * @throws {OperatorError} when it is not known where the API is
 */
export async function timePlace({
  serverAddr,
  proxies,
  enrolment,
  pinned,
  ownCa = null,
}: Pick<ApiAccess, 'serverAddr' | 'proxies' | 'enrolment' | 'ownCa'> & {
  pinned: string | Uint8Array;
}): Promise<TimePlace> {
  const cas = certificatesIn(pinned);
  // The code has the pin of the CA of before.
  const known = ownCa === null ? cas : [...cas, ...certificatesIn(ownCa.configured)];
  const isPinned = (pin: Buffer | null | undefined) => known.some(({ raw }) => pin && sha256(raw).equals(pin));
  // A damaged file of the enrolment must not keep the device offline.
  const code = enrolment === null ? null : await joinedCode(enrolment).catch(() => null);
  // The settings may name another gateway than the one that the device has joined.
  const isJoined = code !== null && (isPinned(code.pin) || isPinned(code.timePin));
  return { ...(isJoined ? { origin: code.origin } : apiBeside(serverAddr ?? '')), proxies, pinned: cas };
}

async function joinedCode(enrolment: string): Promise<JoinCode | null> {
  const installation = await readInstallation(enrolment);
  return installation?.device ? parseJoinCode(installation.code) : null;
}

/**
 * The share links to the endpoints that the agent's authtoken has online. Its operations throw {@link EnrolmentRefused} when
 * the gateway refuses, and any other error when another attempt can succeed.
 *
 * @throws {OperatorError} when it is not known where the API is
 */
export async function shareLinksAt(access: ApiAccess) {
  const place = await apiOf(access);
  const { authtoken } = place;
  return {
    create: async (sent: ShareLinkCreate) =>
      ShareLink.parse(await postTo(place, AGENT_SHARE_LINKS_PATH, { ...sent, authtoken })),
    list: async () =>
      AgentShareLinks.parse(await postTo(place, AGENT_SHARE_LINKS_LIST_PATH, { authtoken })).share_links,
    revoke: async (id: string) => {
      await postTo(place, AGENT_SHARE_LINKS_REVOKE_PATH, { id, authtoken });
    },
  };
}

/**
 * Posts to a gateway's management API.
 *
 * @returns the JSON of the answer; null without a body
 * @throws {EnrolmentRefused} when the gateway refuses; {OperatorError} when its API is not there; any other error when
 *   another attempt can succeed
 */
export function postTo({ origin, trust }: ApiPlace, path: string, body: object): Promise<unknown> {
  return post(origin, path, body, trust).catch((error: unknown) => {
    // A port of the gateway for agents alone.
    const isOther = trust.address !== undefined && hasErrno(error, 'ERR_TLS_CERT_ALTNAME_INVALID');
    throw isOther ? unknownApi(new URL(origin).host) : error;
  });
}

/**
 * The API of a gateway has a name beside the one for sessions, at the same address. It is called there: under some domains, the
 * other name is somebody else's.
 */
function apiBeside(serverAddr: string) {
  if (!serverAddr.startsWith('connect.')) throw unknownApi(serverAddr);
  const { hostname, port } = new URL(`https://${serverAddr}`);
  const address = { host: hostname, port: Number(port) || 443 };
  return { origin: new URL(`https://${serverAddr.replace('connect.', 'api.')}`).origin, address };
}

function unknownApi(serverAddr: string | null): OperatorError {
  return new OperatorError(
    `unknown management API of the gateway at ${serverAddr}: have this device join it with "device-agent join"; share links ` +
      'can be made there, with "device-agent gateway share"',
  );
}
