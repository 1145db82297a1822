import { once } from 'node:events';
import { connect as connectPlainly, createServer, type Socket } from 'node:net';
import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { parseClientHello, peek } from '../../../src/lib/tls/client-hello.ts';
import { fuzz } from '../../support/fuzz.ts';
import { listening } from '../../support/loopback.ts';
import { helloOf, inRecords } from '../../support/tls-records.ts';

let hello: Buffer;
const expected = { serverName: 'cam.example.com', protocols: ['h2', 'http/1.1'] };
beforeAll(async () => {
  hello = await helloOf({ servername: expected.serverName, ALPNProtocols: expected.protocols });
});

describe('a ClientHello', () => {
  it('contains the host name and the protocols', async () => {
    expect(parseClientHello(hello)).toEqual(expected);
    const old = await helloOf({ servername: 'cam.example.com', maxVersion: 'TLSv1.2' });
    expect(parseClientHello(old)).toEqual({ serverName: 'cam.example.com', protocols: [] });
    expect(parseClientHello(await helloOf({}))).toEqual({ serverName: '', protocols: [] });
  });

  it('is parsed from several records, and with bytes after it', () => {
    expect(parseClientHello(inRecords(hello, 100))).toEqual(expected);
    expect(parseClientHello(Buffer.concat([hello, Buffer.from([23, 3, 3, 0, 1, 0])]))).toEqual(expected);
  });

  it('is undefined until it is complete', () => {
    for (let length = 0; length < hello.length; length += 1) {
      expect(parseClientHello(hello.subarray(0, length))).toBeUndefined();
    }
  });

  it('is null when malformed, too long or inconsistent', () => {
    const changed = (at: number, value: number) => Buffer.from(hello).fill(value, at, at + 1);
    expect(parseClientHello(Buffer.from('GET / HTTP/1.1\r\n'))).toBeNull();
    expect(parseClientHello(changed(5, 2))).toBeNull();
    expect(parseClientHello(changed(6, 0xff))).toBeNull();
    expect(parseClientHello(changed(43, 0xff))).toBeNull();
    expect(parseClientHello(Buffer.alloc(400, Buffer.from([22, 3, 1, 0, 0])))).toBeNull();
    expect(parseClientHello(inRecords(hello, 1))).toBeNull();
  });

  it('never makes the parser throw', () => {
    const at = fc.integer({ min: 0, max: 2000 });
    const changes = fc.array(fc.tuple(at, fc.integer({ min: 0, max: 255 })), { minLength: 1, maxLength: 8 });
    fc.assert(
      fc.property(changes, (list) => {
        const bytes = Buffer.from(hello);
        for (const [index, value] of list) bytes[index % bytes.length] = value;
        parseClientHello(bytes);
      }),
      fuzz(2000),
    );
  });
});

describe('reading it from a connection', () => {
  async function pair(): Promise<{ client: Socket; socket: Socket }> {
    const server = createServer({ allowHalfOpen: true });
    await listening(server);
    const client = connectPlainly((server.address() as { port: number }).port, '127.0.0.1').on('error', () => {});
    const [socket] = (await once(server, 'connection')) as [Socket];
    server.close();
    return { client, socket };
  }

  it('leaves all bytes unread', async () => {
    const { client, socket } = await pair();
    const reading = peek(socket, parseClientHello);
    client.write(hello.subarray(0, 50));
    setImmediate(() => client.end(hello.subarray(50)));
    expect(await reading).toEqual(expected);
    const chunks: Buffer[] = [];
    for await (const chunk of socket) chunks.push(chunk as Buffer);
    expect(Buffer.concat(chunks)).toEqual(hello);
  });

  it('is null when the connection ends before it is complete', async () => {
    const silent = await pair();
    const reading = peek(silent.socket, parseClientHello);
    silent.client.end();
    expect(await reading).toBeNull();
    expect(silent.socket.destroyed).toBe(true);
    const broken = await pair();
    const half = peek(broken.socket, parseClientHello);
    broken.client.write(hello.subarray(0, 50), () => broken.client.resetAndDestroy());
    broken.socket.on('error', () => {});
    expect(await half).toBeNull();
  });
});
