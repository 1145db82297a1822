import { describe, expect, it } from 'vitest';
import { parseHttp1Head } from '../../../../../src/gateway/edge/clients/http1/http1-request.ts';
import { MalformedMessage } from '../../../../../src/lib/http/response-head.ts';

const head = (...lines: string[]) => parseHttp1Head(lines.map((line) => `${line}\r\n`).join(''));

describe('the head of a request', () => {
  it('is split into the request line and headers, with their names as sent', () => {
    expect(head('GET /a?b=c HTTP/1.1', 'Host: cam.localhost', 'X-A:', 'x-a: \t 1 2 \t')).toMatchObject({
      method: 'GET',
      target: '/a?b=c',
      version: '1.1',
      rawHeaders: ['Host', 'cam.localhost', 'X-A', '', 'x-a', '1 2'],
      length: 0,
      keepAlive: true,
      upgrade: null,
    });
  });

  it('joins repeated headers, and leaves out those that the edge does not use', () => {
    const { headers } = head(
      'GET / HTTP/1.1',
      'ACCEPT: a',
      'Accept: b',
      'TE: trailers',
      'Cookie: c',
      'Expect: 100-continue',
    );
    expect(headers).toMatchObject({ accept: 'a, b', te: 'trailers', expect: '100-continue', host: undefined });
    expect(headers).not.toHaveProperty('cookie');
  });

  it('collects every header that the edge uses', () => {
    const used = ['connection', 'host', 'sec-websocket-key', 'sec-websocket-version', 'upgrade', 'content-length'];
    const { headers } = head('GET / HTTP/1.1', ...used.map((name) => `${name}: 7`));
    expect(headers).toMatchObject(Object.fromEntries(used.map((name) => [name, '7'])));
    expect(head('GET / HTTP/1.1', 'Transfer-Encoding: chunked').headers['transfer-encoding']).toBe('chunked');
  });

  it.each([
    [['GET / HTTP/1.1'], true],
    [['GET / HTTP/1.1', 'Connection: close'], false],
    [['GET / HTTP/1.1', 'Connection: upgrade , CLOSE'], false],
    [['GET / HTTP/1.1', 'Connection: closed'], true],
    [['GET / HTTP/1.1', 'Connection: x-close, not close'], true],
    [['GET / HTTP/1.0'], false],
    [['GET / HTTP/1.0', 'Connection: x, Keep-Alive'], true],
    [['GET / HTTP/1.0', 'Connection: keep-alives'], false],
    [['GET / HTTP/1.0', 'Connection: keep-alive, close'], false],
  ])('%j keeps the connection open: %j', (lines, expected) => {
    expect(head(...lines).keepAlive).toBe(expected);
  });

  it.each([
    [['GET / HTTP/1.1', 'Connection: upgrade', 'Upgrade: websocket'], 'websocket'],
    [['GET / HTTP/1.1', 'Connection: keep-alive , Upgrade', 'Upgrade: websocket'], 'websocket'],
    [['GET / HTTP/1.1', 'Connection: upgrades', 'Upgrade: websocket'], null],
    [['GET / HTTP/1.1', 'Connection: x upgrade', 'Upgrade: websocket'], null],
    [['GET / HTTP/1.1', 'Upgrade: websocket'], null],
    [['GET / HTTP/1.1', 'Connection: upgrade'], null],
    [['GET / HTTP/1.0', 'Connection: upgrade', 'Upgrade: websocket'], null],
    [['POST / HTTP/1.1', 'Connection: upgrade', 'Upgrade: websocket', 'Content-Length: 1'], null],
    [['POST / HTTP/1.1', 'Connection: upgrade', 'Upgrade: websocket', 'Transfer-Encoding: chunked'], null],
  ])('%j asks for the protocol %j', (lines, expected) => {
    expect(head(...lines).upgrade).toBe(expected);
  });

  it('ignores Expect in HTTP/1.0', () => {
    expect(head('POST / HTTP/1.0', 'Expect: 100-continue', 'Content-Length: 2')).toMatchObject({
      version: '1.0',
      headers: { expect: undefined },
      length: 2,
    });
  });

  it.each([
    ['Content-Length: 0', 0],
    ['Content-Length: 999999999999999', 999_999_999_999_999],
    ['Transfer-Encoding: Chunked', null],
  ])('%s gives the length %j', (line, expected) => {
    expect(head('POST / HTTP/1.1', line).length).toBe(expected);
  });

  it.each(['M-SEARCH', 'X_1', 'A'])('may have the method %s', (method) => {
    expect(head(`${method} / HTTP/1.1`).method).toBe(method);
  });

  it.each([
    ['a lower-case method', ['get / HTTP/1.1']],
    ['a method that starts with a digit', ['1GET / HTTP/1.1']],
    ['a method with other characters', ['GE.T / HTTP/1.1']],
    ['a character before the method', ['\tGET / HTTP/1.1']],
    ['an empty target', ['GET  HTTP/1.1']],
    ['a target with a space', ['GET /a b HTTP/1.1']],
    ['a target beyond ASCII', ['GET /\xe9 HTTP/1.1']],
    ['another version', ['GET / HTTP/1.2']],
    ['text after the version', ['GET / HTTP/1.1 ']],
    ['a folded header', ['GET / HTTP/1.1', 'X: 1', ' 2']],
    ['a space before the colon', ['GET / HTTP/1.1', 'Host : a']],
    ['a header without a name', ['GET / HTTP/1.1', ': a']],
    ['a control character in a value', ['GET / HTTP/1.1', 'X: a\x00b']],
    ['an invalid last header', ['GET / HTTP/1.1', 'Host: a', 'none']],
    ['a length that is no number', ['POST / HTTP/1.1', 'Content-Length: 1a']],
    ['a signed length', ['POST / HTTP/1.1', 'Content-Length: +1']],
    ['an empty length', ['POST / HTTP/1.1', 'Content-Length:']],
    ['a length of 16 digits', ['POST / HTTP/1.1', 'Content-Length: 1000000000000000']],
    ['two lengths', ['POST / HTTP/1.1', 'Content-Length: 1', 'Content-Length: 1']],
    ['another encoding', ['POST / HTTP/1.1', 'Transfer-Encoding: gzip, chunked']],
    ['chunks in HTTP/1.0', ['POST / HTTP/1.0', 'Transfer-Encoding: chunked']],
    ['length and chunks', ['POST / HTTP/1.1', 'Transfer-Encoding: chunked', 'Content-Length: 1']],
  ])('is rejected with %s', (_what, lines) => {
    expect(() => head(...lines)).toThrow(MalformedMessage);
  });
});
