import { PassThrough } from 'node:stream';
import { expect, it } from 'vitest';
import type { ClientRequest } from '../../../../src/gateway/edge/http/client-message.ts';
import { RequestBody } from '../../../../src/gateway/edge/proxy/request-body.ts';

const LIMIT = 1_048_576;

function bodyOf(readMs?: number, address = '192.0.2.1'): { from: PassThrough; body: RequestBody } {
  const from = new PassThrough();
  // RequestBody uses nothing else of the request.
  const request = { headers: {} } as ClientRequest;
  return { from, body: new RequestBody(request, from, address, readMs) };
}

it('a policy waits only once for a body that does not arrive', async () => {
  const { from, body } = bodyOf(20);
  from.write('half');
  expect(await body.read(LIMIT)).toBeNull();
  expect(await body.read(LIMIT)).toBeNull();
  body.stop();
});

it('a body that arrived whole counts until it is sent or stopped', async () => {
  const held: RequestBody[] = [];
  const fits = async () => {
    const { from, body } = bodyOf();
    held.push(body);
    from.end(Buffer.alloc(LIMIT));
    return (await body.read(LIMIT)) !== null;
  };
  const stop = () => {
    for (const body of held.splice(0)) body.stop();
  };
  let count = 0;
  while (await fits()) count += 1;
  // Half of 64 MiB, of which each takes a quarter more than its bytes.
  expect(count).toBe(25);
  stop();
  expect(await fits()).toBe(true);
  stop();
});

it('buffered bodies share one memory limit, of which a client leaves a part for others', async () => {
  const waiting = Array.from({ length: 32 }, () => bodyOf());
  const reads = waiting.map(({ from, body }) => {
    from.write(Buffer.alloc(LIMIT));
    return body.read(LIMIT);
  });
  await new Promise((resolve) => setImmediate(resolve));
  const late = bodyOf();
  late.from.write('one too many');
  expect(await late.body.read(LIMIT)).toBeNull();
  const other = bodyOf(undefined, '192.0.2.2');
  other.from.end(Buffer.alloc(LIMIT));
  expect((await other.body.read(LIMIT))?.length).toBe(LIMIT);
  other.body.stop();
  // Some lose their connection, the others are stopped.
  for (const { from } of waiting.slice(1)) from.destroy();
  waiting[0]?.from.end();
  expect((await reads[0])?.length).toBe(LIMIT);
  expect(await Promise.all(reads.slice(1))).toEqual(Array(31).fill(null));
  waiting[0]?.body.stop();
  late.body.stop();
  const next = bodyOf();
  next.from.end('served again');
  expect(String(await next.body.read(LIMIT))).toBe('served again');
  next.body.stop();
});
