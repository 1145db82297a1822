import type { LookupAddress } from 'node:dns';
import { isIPv6 } from 'node:net';
import fc from 'fast-check';
import { expect, it, onTestFinished } from 'vitest';
import { startServer } from '../../src/agent/api/server.ts';
import { UpstreamDialer } from '../../src/agent/upstreams/upstream-dialer.ts';
import { UpstreamGuard } from '../../src/agent/upstreams/upstream-guard.ts';
import { parseUpstreamRules } from '../../src/settings/upstream-rules.ts';
import { setUpApi } from '../support/api-set-up.ts';
import { FUZZ_MS, fuzz } from '../support/fuzz.ts';
import { silentLog } from '../support/silent-log.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** Addresses that no setting allows, as numbers: cloud metadata, link-local, unspecified, multicast, broadcast. */
const FORBIDDEN: [number, number, number, number][] = [
  [169, 254, 169, 254],
  [169, 254, 170, 2],
  [100, 100, 100, 200],
  [168, 63, 129, 16],
  [192, 0, 0, 192],
  [0, 0, 0, 0],
  [224, 0, 0, 251],
  [255, 255, 255, 255],
];
type Octets = (typeof FORBIDDEN)[number];

const value = (octets: Octets) => octets.reduce((sum, octet) => sum * 256 + octet, 0);
const hex = (octet: number) => octet.toString(16).padStart(2, '0');
const groups = ([a, b, c, d]: Octets) => `${hex(a)}${hex(b)}:${hex(c)}${hex(d)}`;
const inDigits = (text: string, zero: number) =>
  text.replace(/\d/g, (digit) => String.fromCodePoint(zero + Number(digit)));

/** Spellings of an IPv4 address as a host that some parsers accept. */
const AS_HOST: ((octets: Octets) => string)[] = [
  (octets) => octets.join('.'),
  (octets) => `${octets.join('.')}.`,
  (octets) => String(value(octets)),
  (octets) => `0x${value(octets).toString(16)}`,
  (octets) => `0${value(octets).toString(8)}`,
  (octets) => octets.map((octet) => `0x${hex(octet)}`).join('.'),
  (octets) => octets.map((octet) => `0X${hex(octet).toUpperCase()}`).join('.'),
  (octets) => octets.map((octet) => `0${octet.toString(8)}`).join('.'),
  (octets) => octets.map((octet) => String(octet).padStart(5, '0')).join('.'),
  ([a, b, c, d]) => `${a}.${b}.${c * 256 + d}`,
  ([a, b, c, d]) => `${a}.${(b * 256 + c) * 256 + d}`,
  ([a, b, c, d]) => `${a + 256}.${b}.${c}.${d}`,
  (octets) => inDigits(octets.join('.'), 0xff10),
  (octets) => inDigits(octets.join('.'), 0x0660),
  (octets) => octets.join('。'),
  (octets) => `[${octets.join('.')}]`,
  (octets) => `user@${octets.join('.')}`,
  (octets) => `localhost@${octets.join('.')}`,
  (octets) => `${octets.join('.')}%00.localhost`,
  (octets) => `${octets.join('.')}\u0000.localhost`,
  (octets) => `${octets.join('.')}/localhost`,
  (octets) => `${octets.join('.')}#localhost`,
  (octets) => octets.join('%2e'),
  (octets) => `\t${octets.join('.')}`,
];

/** Spellings as an IPv6 address that some networks translate to the IPv4 address. */
const AS_IPV6: ((octets: Octets) => string)[] = [
  (octets) => `::ffff:${octets.join('.')}`,
  (octets) => `::FFFF:${groups(octets)}`,
  (octets) => `0:0:0:0:0:ffff:${groups(octets)}`,
  (octets) => `::ffff:0:${octets.join('.')}`,
  (octets) => `64:ff9b::${octets.join('.')}`,
  (octets) => `64:ff9b:1::${groups(octets)}`,
  (octets) => `2002:${groups(octets)}::1`,
  (octets) => `::ffff:${octets.join('.')}%1`,
];
/** Forbidden IPv6 addresses. */
const IPV6 = [
  '::',
  '0:0:0:0:0:0:0:0',
  'fe80::1',
  'fe80::1%eth0',
  'fe80::1%25eth0',
  'febf::1',
  'fec0::1',
  'ff02::1',
  'fd00:ec2::254',
  'fd20:ce::254',
  '2001:0:a9fe:a9fe::1',
];

const octets = fc.constantFrom(...FORBIDDEN);
const ipv6 = fc.oneof(
  fc.tuple(octets, fc.constantFrom(...AS_IPV6)).map(([address, write]) => write(address)),
  fc.constantFrom(...IPV6),
);
const host = fc.oneof(
  fc.tuple(octets, fc.constantFrom(...AS_HOST)).map(([address, write]) => write(address)),
  ipv6.map((address) => `[${address}]`),
  ipv6,
);
const forwardsTo = fc
  .tuple(
    fc.constantFrom('', 'http://', 'https://', 'HTTP://', 'tcp://', '//'),
    host,
    fc.constantFrom(':80', ':443', ''),
  )
  .map((parts) => parts.join(''));

/** An API with all rules allowed, and names that resolve as the test says. */
async function setUp(addresses: () => string[]) {
  const lookup = async (): Promise<LookupAddress[]> =>
    addresses().map((address) => ({ address, family: isIPv6(address) ? 6 : 4 }));
  const guard = new UpstreamGuard(
    parseUpstreamRules('any,loopback,private,0.0.0.0/0,::/0,*.example,169.254.169.254,fe80::/10'),
    lookup,
  );
  const socketFolder = temporaryFolder();
  const dialer = new UpstreamDialer({ guard, log: silentLog, socketFolder, verifyTls: true, connectMs: 1_000 });
  const { local, connector } = await setUpApi({ guard, dialer });
  const server = await startServer(local, { host: '127.0.0.1', port: 0 }, silentLog);
  onTestFinished(() => server.close(0));
  const start = async (forwards_to: string) => {
    const response = await fetch(`http://${server.address}/tunnels`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ protocol: 'http', forwards_to }),
    });
    return { status: response.status, body: (await response.json()) as { error_code: string; msg: string } };
  };
  return { start, connector };
}

const REFUSED = ['ERR_AGENT_INVALID_REQUEST', 'ERR_AGENT_UPSTREAM_NOT_ALLOWED', 'ERR_AGENT_UPSTREAM_UNKNOWN'];

/** As dev servers print that they listen on all addresses; stands for localhost. */
const EVERY_ADDRESS = /^(?:https?:\/\/)?(?:0\.0\.0\.0\.?|\[(?:::|0(?::0){7})\])(?::\d+)?$/i;

it('no spelling of a forbidden address reaches it, with any allow list', { timeout: FUZZ_MS }, async () => {
  const { start, connector } = await setUp(() => []);
  await fc.assert(
    fc.asyncProperty(forwardsTo, async (text) => {
      const { status, body } = await start(text);
      if (status === 200) expect(text).toMatch(EVERY_ADDRESS);
      else expect([status, REFUSED.includes(body.error_code)], body.msg).toEqual([400, true]);
    }),
    fuzz(150),
  );
  for (const { forwardsTo: shown } of connector.requests) expect(shown).toMatch(/^(?:https?:\/\/)?localhost:\d+$/);
  expect((await start('8.8.8.8:80')).status).toBe(200);
});

it('no name that resolves to a forbidden address reaches it', { timeout: FUZZ_MS }, async () => {
  let addresses: string[] = [];
  const { start, connector } = await setUp(() => addresses);
  const isAddress = (text: string) => !text.includes('%');
  const forbidden = fc.oneof(
    octets.map((address) => address.join('.')),
    ipv6.filter(isAddress),
  );
  const harmless = fc.array(fc.constantFrom('127.0.0.1', '8.8.8.8', '10.0.0.1', '2606:4700::1'), { maxLength: 3 });
  await fc.assert(
    fc.asyncProperty(forbidden, harmless, harmless, async (address, before, after) => {
      addresses = [...before, address, ...after];
      const { status, body } = await start('metadata.example:80');
      expect([status, body.error_code]).toEqual([400, 'ERR_AGENT_UPSTREAM_NOT_ALLOWED']);
    }),
    fuzz(150),
  );
  expect(connector.requests).toEqual([]);
  addresses = ['8.8.8.8', '2606:4700::1'];
  expect((await start('metadata.example:80')).status).toBe(200);
});
