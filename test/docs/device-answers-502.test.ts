import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import {
  ConnectionLost,
  ResponseTimeout,
  upstreamFailure,
  upstreamUnreachable,
} from '../../src/gateway/edge/http/edge-errors.ts';
import { DEVICE_ANSWERS } from '../gateway/device-answers.ts';

const PAGE = readFileSync('docs/device-answers-502.md', 'utf8');
const EDGE = 'src/gateway/edge';
/** Where responses are read. */
const READERS = [
  'src/lib/http/response-head.ts',
  `${EDGE}/http/chunked-decoder.ts`,
  `${EDGE}/proxy/upgrade.ts`,
  ...readdirSync(`${EDGE}/upstreams`).map((name) => join(EDGE, 'upstreams', name)),
];
/** Of requests only. */
const STRICT = ['content-length or transfer-encoding in the trailers'];

/** What the gateway says of invalid responses: texts of faults, and of functions that return one. */
function faults(): string[] {
  const sources = READERS.map((file) => readFileSync(file, 'utf8')).join('\n');
  const thrown = [...sources.matchAll(/new MalformedMessage\(\s*(['`])(.*?)(?:\1|\$\{)/g)].map(
    ([, , text = '']) => text,
  );
  const returned = [...sources.matchAll(/return '(its? [^']*)'/g)].map(([, text = '']) => text);
  return [...new Set([...thrown, ...returned])].map((text) => text.trim()).filter((text) => !STRICT.includes(text));
}

it('docs/device-answers-502.md explains everything that the gateway finds wrong with responses', () => {
  expect(faults().length).toBeGreaterThan(15);
  expect(faults().filter((text) => !PAGE.includes(`\`${text}\``))).toEqual([]);
});

it('docs/device-answers-502.md has no message that the gateway does not have', () => {
  const known = [...faults(), 'its header is longer than 64 KiB'];
  const explained = [...PAGE.matchAll(/^\| `([^`]+)` \| /gm)].map(([, text = '']) => text);
  const messages = explained.filter((text) => !text.startsWith('ERR_'));
  expect(messages.filter((text) => !known.includes(text))).toEqual([]);
  // What devices answer in tests has an explanation, too.
  const unexplained = DEVICE_ANSWERS.filter(({ fault }) => fault && !messages.some((text) => fault.test(text)));
  expect(unexplained.map(({ what }) => what)).toEqual([]);
});

it('docs/device-answers-502.md has the codes and messages of errors between the edge and the upstream', () => {
  const errors = [
    upstreamUnreachable(),
    upstreamFailure(new ConnectionLost()),
    upstreamFailure(new ResponseTimeout(300_000)),
  ];
  for (const { code, message } of errors) expect(PAGE).toContain(`\`${code}\` ${message}`);
});
