import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { displayUpstream, parseUpstream, UpstreamFormatError } from '../../../src/lib/network/upstream-address.ts';
import { fuzz } from '../../support/fuzz.ts';

describe('parseUpstream', () => {
  it.each([
    [8001, 'localhost:8001'],
    ['8001', 'localhost:8001'],
    ['camera:80', 'camera:80'],
    ['Camera.LAN.:80', 'camera.lan:80'],
    ['192.168.1.7:554', '192.168.1.7:554'],
    ['[::1]:8001', '[::1]:8001'],
    ['[FD00:0:0::0001]:8001', '[fd00::1]:8001'],
    ['http://localhost:3000', 'http://localhost:3000'],
    ['HTTPS://router.lan:443/', 'https://router.lan:443'],
    ['https://router.lan', 'https://router.lan:443'],
    ['bücher.example:80', 'xn--bcher-kva.example:80'],
    // As dev servers print them: they listen on every address.
    ['0.0.0.0:8001', 'localhost:8001'],
    ['http://0.0.0.0:8001/', 'http://localhost:8001'],
    ['[::]:8001', 'localhost:8001'],
    ['https://[0:0::0]:8443', 'https://localhost:8443'],
    ['localhost:8001/', 'localhost:8001'],
    ['8001/', 'localhost:8001'],
    ['[::1]:8001/', '[::1]:8001'],
    ['unix:/run/app.sock', 'unix:/run/app.sock'],
    ['unix:///run/./app.sock', 'unix:/run/app.sock'],
  ])('displays %j as %j', (input, shown) => {
    expect(displayUpstream(parseUpstream(input))).toBe(shown);
  });

  it.each([
    ['', 'empty'],
    [' 8001', 'white space'],
    ['host\u0000:80', 'control character'],
    ['host:80\n', 'white space'],
    ['0', 'from 1 to 65535'],
    [65536, 'from 1 to 65535'],
    [80.5, 'from 1 to 65535'],
    [-80, 'from 1 to 65535'],
    ['08001', 'from 1 to 65535'],
    ['host', 'port is missing'],
    ['host:', 'from 1 to 65535'],
    [':80', 'host is missing'],
    ['host:0', 'from 1 to 65535'],
    ['host:65536', 'from 1 to 65535'],
    ['host:80/path', 'the path /path is not supported: give host:80, clients choose the path'],
    ['http://host:80/a/b/', 'the path /a/b/ is not supported: give http://host:80, clients'],
    ['http://host:80//', 'the path // is not supported'],
    ['http://host:80/?q', 'the path /?q is not supported: give http://host:80,'],
    ['http://host:80?q', 'the query ?q is not supported: give http://host:80,'],
    ['host:80/#top', 'the path /#top is not supported: give host:80,'],
    ['host\\\\x:80', 'neither a name'],
    ['http://user:secret@host:80', 'user name'],
    ['http:///', 'host is missing'],
    ['::1:80', 'brackets'],
    ['[fe80::1%eth0]:80', 'zone'],
    ['[1.2.3.4]:80', 'not an IPv6'],
    ['2130706433:80', 'decimal'],
    ['127.1:80', 'decimal'],
    ['0x7f.0.0.1:80', 'decimal'],
    ['0x7f000001:80', 'decimal'],
    ['010.0.0.1:80', 'decimal'],
    ['１２７.1:80', 'decimal'],
    ['tcp://host:22', 'the protocol of the tunnel does'],
    ['tls://host:443', 'the protocol of the tunnel does'],
    ['ftp://host:21', 'not supported'],
    ['-host:80', 'neither a name'],
    ['ho$t:80', 'neither a name'],
    ['unix:run/app.sock', 'absolute'],
    ['unix:/run/', 'folder'],
    [`unix:/${'a'.repeat(107)}`, '107 bytes'],
  ])('refuses %j, naming the problem', (input, problem) => {
    expect(() => parseUpstream(input)).toThrow(UpstreamFormatError);
    expect(() => parseUpstream(input)).toThrow(problem);
    expect(() => parseUpstream(input)).toThrow('supported: a port, host:port');
  });

  it('parses the displayed form to the same upstream, for any input', () => {
    const piece = fc.constantFrom(
      'http://',
      'https://',
      'unix:',
      '[',
      ']',
      '::1',
      'a',
      'b.c',
      '.',
      ':',
      '80',
      '1',
      '/',
      '-',
      '@',
      '０',
    );
    const input = fc.oneof(
      fc.string(),
      fc.tuple(fc.webAuthority(), fc.string()).map(([authority, path]) => `http://${authority}/${path}`),
      fc.ipV4(),
      fc.ipV6(),
      fc.array(piece, { maxLength: 7 }).map((p) => p.join('')),
    );
    fc.assert(
      fc.property(input, (text) => {
        let upstream: ReturnType<typeof parseUpstream>;
        try {
          upstream = parseUpstream(text);
        } catch (error) {
          expect(error).toBeInstanceOf(UpstreamFormatError);
          return;
        }
        const shown = displayUpstream(upstream);
        expect(parseUpstream(shown)).toEqual(upstream);
        // Other parsers read the displayed form the same way.
        if (upstream.kind === 'tcp') {
          const url = new URL(`http://${shown.replace(/^https?:\/\//, '')}`);
          expect(url.hostname.replace(/^\[|\]$/g, '')).toBe(upstream.host);
          expect(url.port || '80').toBe(String(upstream.port));
        }
      }),
      fuzz(1_500),
    );
  });
});
