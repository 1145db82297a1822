import type { Case } from './client.ts';

/** The cases of a JUnit report; a skipped one shows nothing and counts as failed. */
export function casesOfJunit(xml: string, nameOf: (name: string, suite: string) => string): Case[] {
  return [...xml.matchAll(/<testcase ([^>]*?)(?:\/>|>([\s\S]*?)<\/testcase>)/g)].map(
    ([, attributes = '', body = '']) => {
      const failed = /<(?:failure|error|skipped)\b/.test(body);
      const name = nameOf(attribute(attributes, 'name'), attribute(attributes, 'classname'));
      return { name, status: failed ? 'failed' : 'passed', output: failed ? body : '' };
    },
  );
}

function attribute(attributes: string, name: string): string {
  return new RegExp(`\\b${name}="([^"]*)"`).exec(attributes)?.[1] ?? '';
}
