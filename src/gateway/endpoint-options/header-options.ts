import { z } from 'zod';
import { RpcError } from '../../agent-protocol/rpc.ts';
import { quote } from '../../lib/errors.ts';
import { isHeaderText } from '../../traffic-policy/header-text.ts';
import type { RawAction } from '../../traffic-policy/policy-text.ts';

/** The limit of the policy actions; ngrok's own modules took five. */
const MAX_HEADERS = 10;
const MAX_NAME = 128;
const MAX_VALUE = 1024;
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

const headers = z
  .array(z.string())
  .nullish()
  .transform((values) => values ?? []);

/** Entries of `add` have the form `name:value`. */
export const HeaderChanges = z.object({ add: headers, remove: headers });
type HeaderChanges = z.output<typeof HeaderChanges>;

/** ngrok's error codes differ between requests and responses. */
const CODES = {
  request: { format: 'ERR_NGROK_370', name: 'ERR_NGROK_372', option: 'RequestHeaders' },
  response: { format: 'ERR_NGROK_371', name: 'ERR_NGROK_373', option: 'ResponseHeaders' },
} as const;
type Side = keyof typeof CODES;

/**
 * Builds the actions that change headers, removal first. Values can contain `${…}`, as in ngrok's options.
 * @param host for the Host header; null: keep what the client sent or the option sets @throws {RpcError}
 */
export function headerRules(side: Side, changes: HeaderChanges | null | undefined, host: string | null): RawAction[] {
  const added = new Map<string, string>();
  for (const [name, value] of (changes?.add ?? []).map((line) => splitLine(side, line))) {
    if (added.has(name)) throw refused(side, 'ERR_NGROK_375', `${name} is added twice`);
    added.set(name, value);
  }
  if (host !== null) added.set('host', host);
  const removed = removable(side, changes?.remove ?? [], added);
  for (const number of [added.size, removed.length]) {
    if (number <= MAX_HEADERS) continue;
    throw refused(side, 'ERR_NGROK_376', `${number} headers are more than the limit of ${MAX_HEADERS}`);
  }
  const rules: RawAction[] = [];
  if (removed.length > 0) rules.push({ type: 'remove-headers', config: { headers: removed } });
  if (added.size > 0) rules.push({ type: 'add-headers', config: { headers: Object.fromEntries(added) } });
  return rules;
}

/** The host of an upstream, for the Host header. */
export function hostRewrite(forwardsTo: string): string {
  const { host = '', protocol = '' } = URL.canParse(forwardsTo) ? new URL(forwardsTo) : {};
  if (host !== '' && (protocol === 'http:' || protocol === 'https:')) return host;
  throw new RpcError(
    'ERR_NGROK_301',
    'HostHeaderRewrite: the upstream is not an http or https URL; add a host header with RequestHeaders instead',
  );
}

function splitLine(side: Side, line: string): [name: string, value: string] {
  const colon = line.indexOf(':');
  if (colon < 1) throw refused(side, CODES[side].format, `${quote(line)} does not have the form name:value`);
  const name = checkedName(side, line.slice(0, colon).trim());
  const value = line.slice(colon + 1).trim();
  if (value.length > MAX_VALUE) {
    throw refused(side, 'ERR_NGROK_378', `the value of ${name} is longer than ${MAX_VALUE} characters`);
  }
  if (!isHeaderText(value)) {
    throw refused(side, 'ERR_NGROK_374', `the value of ${name} contains a character that is not allowed in headers`);
  }
  return [name, value];
}

function removable(side: Side, names: readonly string[], added: ReadonlyMap<string, string>): string[] {
  const checked = [...new Set(names.map((name) => checkedName(side, name)))];
  if (side === 'response' || !checked.includes('host')) return checked;
  if (!added.has('host')) {
    throw refused(side, 'ERR_NGROK_398', 'host cannot be removed unless another one is added');
  }
  // Adding the header replaces it.
  return checked.filter((name) => name !== 'host');
}

function checkedName(side: Side, name: string): string {
  if (name.length > MAX_NAME) {
    throw refused(side, 'ERR_NGROK_377', `the name ${quote(name)} is longer than ${MAX_NAME} characters`);
  }
  if (NAME.test(name)) return name.toLowerCase();
  throw refused(side, CODES[side].name, `${quote(name)} is not a valid header name`);
}

function refused(side: Side, code: string, problem: string): RpcError {
  return new RpcError(code, `${CODES[side].option}: ${problem}`);
}
