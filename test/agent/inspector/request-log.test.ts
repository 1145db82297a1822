import { describe, expect, it } from 'vitest';
import { RequestLog } from '../../../src/agent/inspector/request-log.ts';
import { recordingLog } from '../../support/silent-log.ts';

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello';

/** A logged connection; time passes when the test says so. */
function setUp() {
  const { log, lines } = recordingLog();
  let now = 0;
  const connection = new RequestLog(log, () => now).connection(() => 'https://cam.example.com');
  return {
    connection,
    client: (text: string) => connection.fromClient(Buffer.from(text, 'latin1')),
    upstream: (text: string) => connection.toClient(Buffer.from(text, 'latin1')),
    after: (ms: number) => {
      now += ms;
    },
    logged: () =>
      lines.map(({ method, path, status, request_bytes, response_bytes, reason }) =>
        [method, path, status, request_bytes, response_bytes, reason].filter((each) => each !== undefined),
      ),
    lines,
  };
}

describe('the log of requests', () => {
  it('has a line for each request with its response, and the tunnel', () => {
    const { client, upstream, after, lines, logged } = setUp();
    client('POST /a?b=1 HTTP/1.1\r\nContent-Length: 2\r\n\r\nhiGET /b HTTP/1.1\r\n\r\n');
    after(12.4);
    upstream(`HTTP/1.1 100 Continue\r\n\r\n${OK}`);
    upstream('HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n');
    expect(lines[0]).toMatchObject({ msg: 'upstream request', url: 'https://cam.example.com', duration_ms: 12 });
    expect(logged()).toEqual([
      ['POST', '/a?b=1', 200, 2, 5],
      ['GET', '/b', 404, 0, 2],
    ]);
  });

  it('has no secrets of a query, and nothing that controls a terminal', () => {
    const { client, upstream, logged } = setUp();
    client('GET /a?access_token=s3cret&x=1\x1b[2J\x9b HTTP/1.1\r\n\r\n');
    upstream(OK);
    expect(logged()[0]?.[1]).toBe('/a?access_token=[masked]&x=1%1B[2J%C2%9B');
  });

  it('says why a request has no whole response', () => {
    const broken = setUp();
    broken.client('GET /a HTTP/1.1\r\n\r\n');
    broken.upstream('HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello');
    broken.connection.closed(false, 'upstream');
    expect(broken.logged()).toEqual([
      ['GET', '/a', 200, 0, 5, 'the upstream closed the connection before the response was complete'],
    ]);
    const other = setUp();
    other.client('GET /a HTTP/1.1\r\n\r\n');
    other.upstream('SSH-2.0-OpenSSH\r\n\r\n');
    other.upstream(OK);
    expect(other.logged()).toEqual([
      [
        'GET',
        '/a',
        null,
        0,
        0,
        'the upstream sent an invalid HTTP response: its status line has no version or no status of three digits',
      ],
    ]);
    expect(other.connection.isOver).toBe(true);
  });

  it('counts an upgraded connection until it ends', () => {
    const { client, upstream, connection, logged } = setUp();
    client('GET /ws HTTP/1.1\r\nUpgrade: websocket\r\n\r\n');
    upstream('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\nabc');
    client('12345');
    connection.closed(true, 'upstream');
    expect(logged()).toEqual([['GET', '/ws', 101, 5, 3]]);
  });
});
