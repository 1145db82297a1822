import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseUserAgent } from '../../src/traffic-policy/scope/user-agent.ts';
import { fuzz } from '../support/fuzz.ts';

const WEBKIT = 'AppleWebKit/537.36 (KHTML, like Gecko';
const DESKTOP = `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${WEBKIT}) Chrome/120.0.0.0 Safari/537.36`;
const ANDROID = 'Mozilla/5.0 (Linux; Android 13; SM-X900)';
const IPHONE = 'Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko)';
const GPTBOT = `Mozilla/5.0 ${WEBKIT}; compatible; GPTBot/1.2; +https://openai.com/gptbot)`;

describe('a user agent', () => {
  it.each([
    [GPTBOT, 'GPTBot', '1.2'],
    [`Mozilla/5.0 ${WEBKIT}); compatible; ChatGPT-User/1.0; +https://openai.com/bot`, 'ChatGPT-User', '1.0'],
    [`Mozilla/5.0 ${WEBKIT}; compatible; ClaudeBot/1.0; +claudebot@anthropic.com)`, 'ClaudeBot', '1.0'],
    ['Mozilla/5.0 (compatible; anthropic-ai/1.0; +http://www.anthropic.com/bot.html)', 'anthropic-ai', '1.0'],
    [`Mozilla/5.0 (compatible; Bytespider; spider-feedback@bytedance.com) ${WEBKIT}) Chrome/70.0`, 'Bytespider', ''],
    ['Mozilla/5.0 (compatible; Kangaroo Bot/1.0; +https://kangaroollm.com.au/bot.html)', 'Kangaroo Bot', '1.0'],
    ['facebookexternalhit/1.1 (+http://www.facebook.com/x.php)', 'facebookexternalhit', '1.1'],
    ['Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)', 'Googlebot', '2.1'],
    [`${DESKTOP} (compatible; BrandNewBot/3.1; +https://new.example)`, 'BrandNewBot', '3.1'],
    [`Mozilla/5.0 (X11; Linux x86_64) ${WEBKIT}) HeadlessChrome/119.0 Safari/537.36`, 'Headless Chrome', '119.0'],
  ])('%s is a bot with a name', (header, name, version) => {
    expect(parseUserAgent(header)).toMatchObject({ name, version, is_bot: true, is_desktop: false });
  });

  it.each([
    [`${DESKTOP} Edg/120.0.2210.91`, 'Edge', '120.0.2210.91', 'Windows 10.0', 'is_desktop'],
    [`${IPHONE} Version/17.0 Mobile/15E148 Safari/604.1`, 'Safari', '17.0', 'iOS 17.0', 'is_mobile'],
    [`${IPHONE} CriOS/120.0 Mobile/15E148 Safari/604.1`, 'Chrome', '120.0', 'iOS 17.0', 'is_mobile'],
    [`${ANDROID} ${WEBKIT}) SamsungBrowser/20.0 Chrome/106`, 'Samsung Browser', '20.0', 'Android 13', 'is_tablet'],
    [`Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) ${WEBKIT}) Chrome/119.0`, 'Chrome', '119.0', 'ChromeOS ', 'is_desktop'],
    [`Mozilla/5.0 (Linux; Android 11; CUBOT X30) Chrome/120.0 Mobile`, 'Chrome', '120.0', 'Android 11', 'is_mobile'],
    ['curl/8.1.2', 'curl', '8.1.2', ' ', null],
    ['python-requests/2.31.0', 'python-requests', '2.31.0', ' ', null],
    ['constructor/1.0', 'constructor', '1.0', ' ', null],
    ['ESP32HTTPClient', 'ESP32HTTPClient', '', ' ', null],
    ['', '', '', ' ', null],
  ])('%s is no bot', (header, name, version, system, kind) => {
    const { os, os_version, is_bot, is_mobile, is_tablet, is_desktop, ...rest } = parseUserAgent(header);
    expect(rest).toMatchObject({ name, version });
    expect({ system: `${os} ${os_version}`, is_bot }).toEqual({ system, is_bot: false });
    const kinds = Object.entries({ is_mobile, is_tablet, is_desktop }).flatMap(([each, is]) => (is ? [each] : []));
    expect(kinds).toEqual(kind === null ? [] : [kind]);
  });

  it('never makes the parser throw', () => {
    const words = fc.constantFrom(
      'Mozilla/5.0',
      '(',
      ';',
      ')',
      '/',
      'Version/',
      'bot',
      'Android 1.',
      ' ',
      'Edg/',
      '[',
      '\\',
    );
    const property = fc.property(fc.array(fc.oneof(words, fc.string()), { maxLength: 30 }), (parts) => {
      const { name, version } = parseUserAgent(parts.join(''));
      expect(name.length + version.length).toBeLessThan(600);
    });
    fc.assert(property, fuzz(200));
  });
});
