import { z } from 'zod';
import { RpcError } from '../../agent-protocol/rpc-error.ts';
import { quote } from '../../lib/quote.ts';
import { isHeaderText } from '../../traffic-policy/header-text.ts';
import type { RawAction } from '../../traffic-policy/policy-text.ts';
import { rewriteLocations } from './rewrite-locations.ts';

/** As many as the policy actions take; ngrok's own modules took five. */
const MAX_HEADERS = 10;
const MAX_NAME = 128;
const MAX_VALUE = 1024;
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

const headers = z
  .array(z.string())
  .nullish()
  .transform((values) => values ?? []);

/** `add` has `name:value` each. */
export const HeaderChanges = z.object({ add: headers, remove: headers });
type HeaderChanges = z.output<typeof HeaderChanges>;

/** Headers that an option changes, as actions. */
export interface AddedHeaders {
  readonly rules: RawAction[];
  /** What follows for the response from the request's changes. */
  readonly responseRules: RawAction[];
}

/** Codes of ngrok's catalogue, which has two for the same problem of requests and responses. */
const CODES = {
  request: { format: 'ERR_NGROK_370', name: 'ERR_NGROK_372', option: 'RequestHeaders' },
  response: { format: 'ERR_NGROK_371', name: 'ERR_NGROK_373', option: 'ResponseHeaders' },
} as const;
type Side = keyof typeof CODES;

/**
 * The actions that change headers: what is removed goes first, so that a header can be replaced. Values may hold `${…}`,
 * as they do in ngrok's options.
 *
 * @param host what the Host header is to be besides; null: what the client sent, or the option says
 * @throws {RpcError} when one of them is no header, or there are too many
 */
export function headerRules(side: Side, changes: HeaderChanges | null | undefined, host: string | null): AddedHeaders {
  const added = new Map<string, string>();
  for (const [name, value] of (changes?.add ?? []).map((line) => splitLine(side, line))) {
    if (added.has(name)) throw refused(side, 'ERR_NGROK_375', `${name} is added twice`);
    added.set(name, value);
  }
  if (host !== null) added.set('host', host);
  const removed = removable(side, changes?.remove ?? [], added);
  for (const number of [added.size, removed.length]) {
    if (number <= MAX_HEADERS) continue;
    throw refused(side, 'ERR_NGROK_376', `${number} headers are more than ${MAX_HEADERS}`);
  }
  const rules: RawAction[] = [];
  if (removed.length > 0) rules.push({ type: 'remove-headers', config: { headers: removed } });
  if (added.size > 0) rules.push({ type: 'add-headers', config: { headers: Object.fromEntries(added) } });
  const newHost = side === 'request' ? added.get('host') : undefined;
  const responseRules =
    newHost === undefined ? [] : [{ type: 'rewrite-locations', prepare: () => rewriteLocations(newHost) }];
  return { rules, responseRules };
}

/** The host of an upstream, for whoever wants it in the Host header. */
export function hostRewrite(forwardsTo: string): string {
  const { host = '', protocol = '' } = URL.canParse(forwardsTo) ? new URL(forwardsTo) : {};
  if (host !== '' && (protocol === 'http:' || protocol === 'https:')) return host;
  throw new RpcError(
    'ERR_NGROK_301',
    'HostHeaderRewrite: the upstream is not known here as an http or https URL; add a host header with RequestHeaders instead',
  );
}

function splitLine(side: Side, line: string): [name: string, value: string] {
  const colon = line.indexOf(':');
  if (colon < 1) throw refused(side, CODES[side].format, `${quote(line)} is not of the form name:value`);
  const name = checkedName(side, line.slice(0, colon).trim());
  const value = line.slice(colon + 1).trim();
  if (value.length > MAX_VALUE) {
    throw refused(side, 'ERR_NGROK_378', `the value of ${name} is longer than ${MAX_VALUE} characters`);
  }
  if (!isHeaderText(value)) {
    throw refused(side, 'ERR_NGROK_374', `the value of ${name} holds a character that a header cannot carry`);
  }
  return [name, value];
}

function removable(side: Side, names: readonly string[], added: ReadonlyMap<string, string>): string[] {
  const checked = [...new Set(names.map((name) => checkedName(side, name)))];
  if (side === 'response' || !checked.includes('host')) return checked;
  if (!added.has('host')) {
    throw refused(side, 'ERR_NGROK_398', 'host cannot be removed without another one being added');
  }
  // Adding it replaces it.
  return checked.filter((name) => name !== 'host');
}

function checkedName(side: Side, name: string): string {
  if (name.length > MAX_NAME) {
    throw refused(side, 'ERR_NGROK_377', `the name ${quote(name)} is longer than ${MAX_NAME} characters`);
  }
  if (NAME.test(name)) return name.toLowerCase();
  throw refused(side, CODES[side].name, `${quote(name)} is no name of a header`);
}

function refused(side: Side, code: string, problem: string): RpcError {
  return new RpcError(code, `${CODES[side].option}: ${problem}`);
}

/** What comes from outside goes into messages shortened. */
