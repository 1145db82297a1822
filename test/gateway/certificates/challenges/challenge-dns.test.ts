import { createSocket } from 'node:dgram';
import { Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { decode, encode, type Packet, RECURSION_DESIRED, TRUNCATED_RESPONSE } from 'dns-packet';
import pino from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ChallengeDns } from '../../../../src/gateway/certificates/challenges/challenge-dns.ts';
import { TxtChallenges } from '../../../../src/gateway/certificates/challenges/challenges.ts';

const ZONE = 'acme.gateway.test';
const NAME = `k3j9x2ab.${ZONE}`;
const silent = pino({ level: 'silent' });

describe('the DNS server of the challenge zone', () => {
  let txt: TxtChallenges;
  let server: ChallengeDns;
  let port: number;
  let now: number;
  let resolver: Resolver;

  beforeEach(async () => {
    now = 0;
    txt = new TxtChallenges();
    const zone = { name: ZONE, nameServer: 'gateway.test', texts: (name: string) => txt.lookup(name) };
    server = new ChallengeDns({ host: '127.0.0.1', port: 0, zone }, { clock: { now: () => now }, log: silent });
    port = await server.start();
    resolver = new Resolver({ timeout: 2000, tries: 1 });
    resolver.setServers([`127.0.0.1:${port}`]);
  });
  afterEach(() => server.stop());

  const query = (changes: Partial<Packet> = {}): Buffer =>
    encode({ type: 'query', id: 7, questions: [{ type: 'TXT', name: NAME }], ...changes });

  /** The response to a query over UDP. */
  async function ask(...packets: Buffer[]): Promise<Buffer> {
    const socket = createSocket('udp4');
    try {
      for (const packet of packets) socket.send(packet, port, '127.0.0.1');
      const [answer] = await once(socket, 'message', { signal: AbortSignal.timeout(2000) });
      return answer;
    } finally {
      socket.close();
    }
  }

  async function open(): Promise<Socket> {
    const socket = connect(port, '127.0.0.1');
    await once(socket, 'connect');
    return socket;
  }

  const framed = (packet: Buffer) => Buffer.concat([Buffer.from([packet.length >> 8, packet.length & 0xff]), packet]);
  const rcode = (answer: Buffer) => answer.readUInt16BE(2) & 0xf;

  it('answers with every published value until it is withdrawn', async () => {
    const takeBack = txt.publish(NAME, 'first');
    txt.publish(NAME.toUpperCase(), 'second');
    await expect(resolver.resolveTxt(NAME)).resolves.toEqual([['first'], ['second']]);
    takeBack();
    await expect(resolver.resolveTxt(NAME)).resolves.toEqual([['second']]);
  });

  it('keeps the letter case of the query', async () => {
    txt.publish(NAME, 'value');
    const name = 'K3j9X2Ab.aCMe.GaTeway.tEST';
    const answer = decode(await ask(query({ questions: [{ type: 'TXT', name }], flags: RECURSION_DESIRED })));
    expect(answer).toMatchObject({ id: 7, type: 'response', flag_aa: true, flag_rd: true, flag_ra: false });
    expect(answer.questions).toMatchObject([{ name }]);
    expect(answer.answers).toMatchObject([{ name, type: 'TXT', ttl: 1 }]);
  });

  it('answers SOA and NS of the zone', async () => {
    await expect(resolver.resolveNs(ZONE)).resolves.toEqual(['gateway.test']);
    await expect(resolver.resolveSoa(ZONE)).resolves.toMatchObject({ nsname: 'gateway.test', minttl: 1 });
  });

  it.each([
    ['no such name', 'TXT', `other.${ZONE}`, 3],
    ['a name without such records', 'A', NAME, 0],
    ['the zone itself without such records', 'TXT', ZONE, 0],
  ] as const)('limits how long resolvers cache that there is %s', async (_title, type, name, expected) => {
    txt.publish(NAME, 'value');
    const answer = await ask(query({ questions: [{ type, name }] }));
    expect(rcode(answer)).toBe(expected);
    const { answers, authorities } = decode(answer);
    expect(answers).toEqual([]);
    expect(authorities).toMatchObject([{ type: 'SOA', name: ZONE, ttl: 1, data: { minimum: 1 } }]);
  });

  it.each([
    ['names elsewhere', query({ questions: [{ type: 'A', name: 'example.org' }] })],
    ['names with only the same ending', query({ questions: [{ type: 'TXT', name: `x${ZONE}` }] })],
    ['the root', query({ questions: [{ type: 'NS', name: '.' }] })],
    ['other classes', query({ questions: [{ type: 'TXT', name: 'version.bind', class: 'CH' }] })],
    ['zone transfers', query({ questions: [{ type: 'AXFR', name: ZONE }] })],
  ])('refuses %s', async (_title, packet) => {
    const answer = await ask(packet);
    expect(rcode(answer)).toBe(5);
    expect(decode(answer)).toMatchObject({ flag_aa: false, answers: [], authorities: [] });
  });

  it('supports EDNS version 0 only', async () => {
    txt.publish(NAME, 'value');
    const opt = (ednsVersion: number) => ({
      ...{ type: 'OPT' as const, name: '.', udpPayloadSize: 4096, extendedRcode: 0, ednsVersion },
      ...{ flags: 0, flag_do: false, options: [] },
    });
    const answer = decode(await ask(query({ additionals: [opt(0)] })));
    expect(answer.answers).toHaveLength(1);
    expect(answer.additionals).toMatchObject([{ type: 'OPT', udpPayloadSize: 1232, extendedRcode: 0 }]);
    const newer = decode(await ask(query({ additionals: [opt(1)] })));
    expect(newer).toMatchObject({ answers: [], additionals: [{ extendedRcode: 1 }] });
  });

  it('truncates long responses over UDP and sends them over TCP', async () => {
    const values = Array.from({ length: 20 }, (_, index) => String(index).padEnd(43, 'x'));
    for (const value of values) txt.publish(NAME, value);
    const answer = await ask(query());
    expect(answer.length).toBeLessThanOrEqual(512);
    expect((answer.readUInt16BE(2) & TRUNCATED_RESPONSE) !== 0).toBe(true);
    // Node's resolver retries over TCP.
    expect((await resolver.resolveTxt(NAME)).flat()).toEqual(values);
  });

  it('accepts fragmented and pipelined queries over TCP', async () => {
    txt.publish(NAME, 'value');
    const socket = await open();
    const both = Buffer.concat([framed(query({ id: 1 })), framed(query({ id: 2 }))]);
    for (const byte of both) socket.write(Buffer.of(byte));
    let received = Buffer.alloc(0);
    for await (const chunk of socket) {
      received = Buffer.concat([received, chunk]);
      if (received.length >= 2 * (received.readUInt16BE(0) + 2)) break;
    }
    const size = received.readUInt16BE(0) + 2;
    const ids = [received.subarray(2, size), received.subarray(size + 2)].map((packet) => decode(packet).id);
    expect(ids).toEqual([1, 2]);
  });

  it.each([
    ['announces a message that is too long', [Buffer.from([0xff, 0xff])]],
    ['sends an invalid query', [framed(Buffer.alloc(3))]],
    ['sends more queries than allowed', Array.from({ length: 33 }, () => framed(query()))],
  ])('closes a connection that %s', async (_title, messages) => {
    const socket = await open();
    socket.resume();
    socket.on('error', () => {});
    for (const message of messages) socket.write(message);
    await once(socket, 'close', { signal: AbortSignal.timeout(2000) });
  });

  it('closes the oldest connection when all are in use', async () => {
    const held = await Promise.all(Array.from({ length: 64 }, open));
    const closed = Promise.race(held.map((socket) => once(socket, 'close')));
    for (const socket of held) socket.resume().on('error', () => {});
    const late = await open();
    await closed;
    late.write(framed(query()));
    await once(late, 'data', { signal: AbortSignal.timeout(2000) });
    for (const socket of [...held, late]) socket.destroy();
  });

  it('never responds to a response', async () => {
    const response = encode({ type: 'response', id: 1, questions: [{ type: 'TXT', name: NAME }] });
    expect(decode(await ask(response, query())).id).toBe(7);
  });

  it('limits the responses to one network in a second', async () => {
    const questions = Array.from({ length: 50 }, (_, index) => query({ id: index }));
    const socket = createSocket('udp4');
    const ids: number[] = [];
    socket.on('message', (answer) => ids.push(answer.readUInt16BE(0)));
    // One after another, so that no datagram is lost in a full buffer.
    for (const packet of questions) {
      socket.send(packet, port, '127.0.0.1');
      await once(socket, 'message', { signal: AbortSignal.timeout(2000) });
    }
    // Over TCP, a missing response shows immediately.
    const tcp = await open();
    tcp.on('error', () => {});
    tcp.resume().write(framed(query()));
    await once(tcp, 'close', { signal: AbortSignal.timeout(2000) });
    now += 1000;
    socket.send(query({ id: 999 }), port, '127.0.0.1');
    await once(socket, 'message', { signal: AbortSignal.timeout(2000) });
    socket.close();
    expect(ids).toEqual([...Array(50).keys(), 999]);
  });

  it('closes all sockets when stopped', async () => {
    const socket = await open();
    const closed = once(socket.resume(), 'close');
    await server.stop();
    await closed;
    const again = connect(port, '127.0.0.1');
    await expect(once(again, 'connect')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  it('rejects when its port is in use', async () => {
    const zone = { name: ZONE, nameServer: 'gateway.test', texts: () => [] };
    const second = new ChallengeDns({ host: '127.0.0.1', port, zone }, { clock: { now: () => 0 }, log: silent });
    await expect(second.start()).rejects.toMatchObject({ code: 'EADDRINUSE' });
  });
});
