import { describe, expect, it } from 'vitest';
import { HttpChallenges } from '../../../../src/gateway/certificates/challenges/challenges.ts';

const PATH = '/.well-known/acme-challenge/token-1';

describe('HTTP challenges', () => {
  it('are answered for their host', () => {
    const challenges = new HttpChallenges();
    challenges.publish('shop.example.test', 'token-1', 'token-1.thumbprint');
    expect(challenges.answer('shop.example.test', PATH)).toBe('token-1.thumbprint');
  });

  it.each([
    ['another host', 'other.example.test', PATH],
    ['another token', 'shop.example.test', `${PATH}2`],
    ['another path', 'shop.example.test', '/token-1'],
    ['no token', 'shop.example.test', '/.well-known/acme-challenge/'],
  ])('do not handle %s', (_title, host, path) => {
    const challenges = new HttpChallenges();
    challenges.publish('shop.example.test', 'token-1', 'token-1.thumbprint');
    expect(challenges.answer(host, path)).toBeUndefined();
  });

  it('end once withdrawn', () => {
    const challenges = new HttpChallenges();
    challenges.publish('shop.example.test', 'token-1', 'token-1.thumbprint')();
    expect(challenges.answer('shop.example.test', PATH)).toBeUndefined();
  });
});
