import { decode, encode } from 'dns-packet';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  answerQuery,
  type ChallengeZone,
} from '../../../../src/gateway/certificates/challenges/challenge-dns-answer.ts';
import { fuzz } from '../../../support/fuzz.ts';

const zone: ChallengeZone = {
  name: 'acme.gateway.test',
  nameServer: 'gateway.test',
  texts: (name) => (name === 'k3j9x2ab.acme.gateway.test' ? ['value'] : []),
};
const valid = encode({ type: 'query', id: 7, questions: [{ type: 'TXT', name: 'k3j9x2ab.acme.gateway.test' }] });

const rcodeOf = (answer: Buffer | null) => (answer === null ? null : answer.readUInt16BE(2) & 0xf);
/** The valid query with some bytes replaced. */
const patched = (offset: number, ...bytes: number[]) => {
  const packet = Buffer.from(valid);
  packet.set(bytes, offset);
  return packet;
};
/** A query for a name with so many labels of one letter. */
const named = (labels: number) =>
  Buffer.concat([valid.subarray(0, 12), Buffer.alloc(2 * labels, '\u0001a'), Buffer.from([0, 0, 16, 0, 1])]);
const FORMAT_ERROR = 1;
/** The limit of processor time for one packet, in milliseconds. */
const MAX_MS = 2;

describe('a DNS packet', () => {
  it.each<[string, Buffer, number | null]>([
    ['shorter than a header', valid.subarray(0, 11), null],
    ['that is a response', patched(2, 0x80), null],
    ['with another operation', patched(2, 0x28), 4],
    ['without a question', patched(4, 0, 0), FORMAT_ERROR],
    ['with two questions', patched(4, 0, 2), FORMAT_ERROR],
    ['with answers', patched(6, 0xff, 0xff), FORMAT_ERROR],
    ['with authority records', patched(8, 0xff, 0xff), FORMAT_ERROR],
    ['with many additional records', patched(10, 0xff, 0xff), FORMAT_ERROR],
    ['with an additional record that is missing', patched(10, 0, 1), FORMAT_ERROR],
    ['whose name is cut off', valid.subarray(0, 20), FORMAT_ERROR],
    ['whose name points to itself', patched(12, 0xc0, 0x0c), FORMAT_ERROR],
    ['whose name contains a dot in a label', patched(14, 0x2e), FORMAT_ERROR],
    ['whose name contains bytes that are not text', patched(14, 0xff), FORMAT_ERROR],
    ['whose name has the maximum length', named(127), 5],
    ['whose name exceeds the maximum length', named(128), FORMAT_ERROR],
    ['longer than any query', Buffer.concat([valid, Buffer.alloc(1024)]), FORMAT_ERROR],
    ['that is a valid query', valid, 0],
  ])('%s', (_title, packet, expected) => {
    expect(rcodeOf(answerQuery(packet, zone, 'udp'))).toBe(expected);
  });

  it('with any content gets a response with its id, within the size limit of its transport', () => {
    const mutation = fc.tuple(fc.nat(valid.length - 1), fc.nat(255));
    const mutated = fc
      .tuple(fc.array(mutation, { maxLength: 8 }), fc.uint8Array({ maxLength: 300 }))
      .map(([changes, tail]) => {
        const packet = Buffer.concat([valid, tail]);
        for (const [offset, byte] of changes) packet[offset] = byte;
        return packet;
      });
    const random = fc.uint8Array({ maxLength: 1500 }).map((bytes) => Buffer.from(bytes));
    fc.assert(
      fc.property(fc.oneof(mutated, random), fc.constantFrom('udp' as const, 'tcp' as const), (packet, transport) => {
        const answer = answerQuery(packet, zone, transport);
        if (answer === null) return;
        expect(answer.readUInt16BE(0)).toBe(packet.readUInt16BE(0));
        expect(answer.readUInt16BE(2) & 0x8000).toBe(0x8000);
        expect(answer.length).toBeLessThanOrEqual(512);
        // A forged source address must not turn the server into an amplifier.
        expect(answer.length).toBeLessThan(packet.length + 150);
        decode(answer);
      }),
      fuzz(5000),
    );
  });

  it('takes little processor time in the worst case', () => {
    const options = Buffer.concat(Array.from({ length: 220 }, () => Buffer.from([0, 8, 0, 0])));
    const opt = Buffer.concat([
      Buffer.from([0, 0, 41, 16, 0, 0, 0, 0, 0, options.length >> 8, options.length & 255]),
      options,
    ]);
    const packets = [Buffer.concat([patched(10, 0, 1), opt]), named(127)];
    for (const packet of packets) {
      const start = process.cpuUsage();
      for (let round = 0; round < 1000; round += 1) answerQuery(packet, zone, 'udp');
      // The real cost is far lower; a higher one would be a problem.
      expect(process.cpuUsage(start).user / 1000).toBeLessThan(1000 * MAX_MS);
    }
  });
});
