import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Router } from 'express';
import { describe, expect, it } from 'vitest';
import { StreamType } from '../../src/agent-protocol/messages.ts';
import { OPTION_NAMES } from '../../src/gateway/endpoint-options/endpoint-options.ts';
import { createSignInPage } from '../../src/gateway/sign-in/page/sign-in-page.ts';
import { PeopleProvider } from '../../src/gateway/sign-in/people-provider.ts';
import { ACTION_TYPES, traitsOf } from '../../src/traffic-policy/action-types.ts';
import { NO_ACTIVITY } from '../support/edge-context.ts';
import { startManagementServer } from '../support/management-server.ts';
import { silentLog } from '../support/silent-log.ts';

const [, chapter = ''] =
  /\n## Inputs and their limits\n([\s\S]*?)\n## /.exec(readFileSync('docs/security.md', 'utf8')) ?? [];
const rows = chapter
  .split('\n')
  .filter((line) => /^\| (?!Input |---)/.test(line))
  .map((line) => line.slice(2, -2).split(' | '));
const names = new Set(rows.flatMap(([input = '']) => [...input.matchAll(/`([^`]+)`/g)].map(([, name]) => name)));

/** Those that no row names. */
const missing = (inputs: readonly string[]) => inputs.filter((input) => !names.has(input));

interface Route {
  readonly method: string;
  readonly path: string;
}

/** All routes of an app, those of its routers included. */
function routesOf({ stack }: Pick<Router, 'stack'>): Route[] {
  return stack.flatMap(({ route, handle }) => {
    if (!route) return 'stack' in handle ? routesOf(handle as Router) : [];
    return [{ method: route.stack[0]?.method.toUpperCase() ?? '', path: route.path }];
  });
}

/** The paths that endpoints and ports answer themselves, as the source writes them. */
function ownPaths(): string[] {
  const files = ['src/gateway', 'src/traffic-policy'].flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((name) => join(folder, name)),
  );
  const sources = files.filter((file) => file.endsWith('.ts')).map((file) => readFileSync(file, 'utf8'));
  return sources.flatMap((source) =>
    [...source.matchAll(/'(\/(?:ngrok|\.well-known)\/[^']*)'/g)].map(([, path = '']) => path),
  );
}

describe('docs/security.md, inputs and their limits', () => {
  it('says of every input who chooses it, its limit, who pays, and which tests show it', () => {
    expect(rows.length).toBeGreaterThan(30);
    const incomplete = rows.filter((cells) => cells.length !== 5 || cells.some((cell) => !/\w/.test(cell)));
    expect(incomplete).toEqual([]);
    const files = rows.flatMap(([, , , , tests = '']) => tests.split(', '));
    expect(files.filter((file) => !/^`test\/.+\.test\.ts`$/.test(file) || !existsSync(file.slice(1, -1)))).toEqual([]);
  });

  it('names every action that the gateway runs', () => {
    expect(missing(ACTION_TYPES.filter((type) => traitsOf(type)?.runsOn === 'gateway'))).toEqual([]);
  });

  it('names every option that SDKs send with an endpoint', () => {
    expect(missing(OPTION_NAMES)).toEqual([]);
  });

  it('names every stream of an agent’s session', () => {
    expect(missing(Object.keys(StreamType))).toEqual([]);
  });

  it('names every path that the gateway answers at endpoints', () => {
    expect(ownPaths().length).toBeGreaterThan(3);
    expect(missing(ownPaths())).toEqual([]);
  });

  it('names every route that answers without an API key', async () => {
    const failedAttempts = { free: Number.POSITIVE_INFINITY, windowMs: 1, delayMs: 0, maxDelayMs: 0 };
    const server = await startManagementServer({ settings: { failedAttempts } });
    try {
      const { url, app, store } = server;
      const routes = routesOf(app.router);
      expect(routes.length).toBeGreaterThan(100);
      const answers = await Promise.all(
        routes.map(async ({ method, path }) => (await fetch(url + path, { method })).text()),
      );
      const keyless = routes.filter((_, index) => !answers[index]?.includes('"ERR_NGROK_200"'));
      const people = new PeopleProvider(store, 'sign-in.gateway.test');
      const page = createSignInPage(
        { store, options: {}, activity: NO_ACTIVITY, log: silentLog },
        { people, isRefused: () => false, applications: () => [] },
      );
      expect(missing([...keyless, ...routesOf(page.router)].map(({ path }) => path))).toEqual([]);
    } finally {
      await server.close();
    }
  });
});
