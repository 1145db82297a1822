import { expect, it } from 'vitest';
import { type HandshakeDemands, TlsContexts } from '../../../../src/gateway/edge/tls/handshakes.ts';
import { EDGE_TERMINATION } from '../../../../src/gateway/endpoints/endpoint.ts';
import { selfSigned } from '../../../support/self-signed.ts';

it('contexts are cached, with bounded memory', async () => {
  const contexts = new TlsContexts();
  const pair = await selfSigned();
  const plain = contexts.contextFor(pair, EDGE_TERMINATION);
  // Agents can make it large: text before a certificate is a comment.
  const large = (number: number): HandshakeDemands => ({
    ...EDGE_TERMINATION,
    clientAuthorities: [`${number}${' '.repeat(512 * 1024)}\n${pair.cert}`],
  });
  const first = contexts.contextFor(pair, large(0));
  expect(contexts.contextFor(pair, large(0))).toBe(first);
  for (let number = 1; number < 40; number++) {
    contexts.contextFor(pair, large(number));
    expect(contexts.contextFor(pair, EDGE_TERMINATION)).toBe(plain);
  }
  expect(contexts.contextFor(pair, large(39))).toBe(contexts.contextFor(pair, large(39)));
  expect(contexts.contextFor(pair, large(0))).not.toBe(first);
});
