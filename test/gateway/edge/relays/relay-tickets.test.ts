import { expect, it } from 'vitest';
import { RelayTickets } from '../../../../src/gateway/edge/relays/relay-tickets.ts';
import { parseProxyHeader, proxyHeader } from '../../../../src/lib/network/proxy-protocol.ts';

const ENDS = { clientIp: '203.0.113.7', clientPort: 4567, serverIp: '192.0.2.1', serverPort: 443 };

function setUp(key = 'key') {
  const clock = { now: 1_700_000_000_000 };
  const [one, two] = ['one', 'two'].map(
    (self) =>
      new RelayTickets(
        () => ['key'],
        self,
        () => clock.now,
      ),
  );
  const redeem = (tickets: RelayTickets | undefined, bytes: Buffer) => {
    const header = parseProxyHeader(bytes);
    return header ? tickets?.redeem(bytes.subarray(0, header.length), header) : 'no header';
  };
  const issue = (to = 'two') =>
    new RelayTickets(
      () => [key],
      'one',
      () => clock.now,
    ).issue(ENDS, to);
  return { clock, one, two, redeem, issue };
}

it('a node believes another one, once', () => {
  const { clock, two, redeem, issue } = setUp();
  const bytes = issue();
  expect(parseProxyHeader(bytes)?.ends).toEqual(ENDS);
  expect(redeem(two, Buffer.concat([bytes, Buffer.from('what follows')]))).toEqual({
    by: 'one',
    port: 'tls',
    isLast: false,
  });
  expect(redeem(two, bytes)).toBeNull();
  expect(
    redeem(
      two,
      new RelayTickets(
        () => ['key'],
        'one',
        () => clock.now,
      ).issue(ENDS, 'two', { port: 20_001, isLast: true }),
    ),
  ).toEqual({
    by: 'one',
    port: 20_001,
    isLast: true,
  });
});

it('not with another key, nor for another node, nor late or early', () => {
  expect(setUp('other key').redeem(setUp().two, setUp('other key').issue())).toBeNull();
  const { clock, one, two, redeem, issue } = setUp();
  expect(redeem(one, issue('two'))).toBeNull();
  for (const ms of [16_000, -16_000]) {
    const bytes = issue();
    clock.now += ms;
    expect(redeem(two, bytes)).toBeNull();
  }
  expect(redeem(two, proxyHeader(2, ENDS))).toBeNull();
});

it('not what was made before it was started, and may have been used then', () => {
  const { clock, redeem, issue } = setUp();
  const [old, fresh] = [issue(), issue()];
  const started = () =>
    new RelayTickets(
      () => ['key'],
      'two',
      () => clock.now,
      () => clock.now,
    );
  expect(redeem(started(), fresh)).toEqual({ by: 'one', port: 'tls', isLast: false });
  clock.now += 1_500;
  const restarted = started();
  expect(redeem(restarted, old)).toBeNull();
  clock.now += 100;
  expect(redeem(restarted, issue())).toEqual({ by: 'one', port: 'tls', isLast: false });
});

it('not when one bit of it has changed', () => {
  const { two, redeem, issue } = setUp();
  const bytes = issue();
  for (let bit = 0; bit < bytes.length * 8; bit += 3) {
    const changed = Buffer.from(bytes);
    changed.writeUInt8(changed.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
    expect(['no header', null], String(bit)).toContain(redeem(two, changed));
  }
  expect(redeem(two, bytes)).toEqual({ by: 'one', port: 'tls', isLast: false });
});
