import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import type { BrowserContext, Page } from 'playwright-core';
import { launchBrowser, NO_CHROMIUM } from '../support/browser.ts';
import { issueCertificate } from '../support/certificates.ts';
import { listening } from '../support/loopback.ts';
import { firstOf, programMissing } from '../support/requirements.ts';
import { until } from '../support/until.ts';
import type { Case, Client } from './client.ts';
import type { Lab } from './lab.ts';
import { withAgent } from './lab-agent.ts';
import { mustRun } from './program.ts';

/** Another site than the gateway's, as providers are. */
const HOST = 'login.ngrok.io';
const PORT = 8443;
const ORIGIN = `https://${HOST}:${PORT}`;
const AUTHORITY = 'authority.pem';
const CERTIFICATE = 'certificate.pem';
const KEY = 'key.pem';
const CLIENT = { client_id: 'cameras', client_secret: 'a secret of the operator' };
const PASSWORD = 'a password of jo';
const EMAIL = 'jo@example.com';
/** What a provider needs to start on a busy machine. */
const START_MS = 300_000;
/** The shortest interval that policies can have, and some. */
const RENEWED_MS = 90_000;

/** A provider as operators run it, with a person who is called jo. */
interface Provider extends Pick<Client, 'title' | 'needs' | 'missing' | 'expected'> {
  issuer: string;
  /** Below the issuer's origin: answers 200 when it has started. */
  ready: string;
  /** Fetches it, and writes its settings. */
  prepare(folder: string, redirects: string[]): Promise<void>;
  command(folder: string): { command: string[]; env?: Record<string, string> };
  signIn(page: Page): Promise<void>;
  /** The button by which people let the client see who they are. */
  agree: string;
  decline: string;
  /** After that, it confirms no session of jo any more, at once or when the ID token expires. */
  remove(context: BrowserContext, restart: () => Promise<void>, folder: string): Promise<void>;
}

const TUNNELS = {
  cam: { userinfo_refresh_interval: '1m' },
  short: { max_session_duration: '3s' },
  wrong: { client_secret: 'another secret' },
};

/** The provider's process. */
class Running {
  #child: ChildProcess | null = null;

  constructor(
    private readonly provider: Provider,
    private readonly folder: string,
  ) {}

  async start(context: BrowserContext): Promise<void> {
    const { command, env } = this.provider.command(this.folder);
    const log = openSync(join(this.folder, 'provider.log'), 'a');
    const [program = '', ...args] = command;
    // Programs that start others end with their group.
    this.#child = spawn(program, args, {
      env: { PATH: process.env.PATH, HOME: this.folder, ...env },
      stdio: ['ignore', log, log],
      detached: true,
    });
    const isReady = () =>
      context.request.get(`${ORIGIN}${this.provider.ready}`).then(
        (answer) => answer.ok(),
        () => false,
      );
    await until(isReady, `${this.provider.title} to start`, { withinMs: START_MS, everyMs: 500 });
  }

  async stop(): Promise<void> {
    const child = this.#child;
    this.#child = null;
    if (child?.pid === undefined || child.exitCode !== null) return;
    const ended = once(child, 'exit');
    process.kill(-child.pid, 'SIGKILL');
    await ended;
  }
}

function identityProvider(provider: Provider): Client {
  return {
    title: provider.title,
    what: 'people of a real provider sign in with Chromium, as sign-in.md says: consent, renewal, removal, sign-out, expiry, a wrong secret, an outage',
    needs: provider.needs,
    missing: () => firstOf(provider.missing(), NO_CHROMIUM),
    async fetch(sources) {
      const issuer = await issueCertificate({ subject: 'CN=A certificate authority', ca: true });
      const { certificatePem, privateKeyPem } = await issueCertificate({
        subject: `CN=${HOST}`,
        names: [HOST],
        issuer,
      });
      writeFileSync(join(sources, AUTHORITY), issuer.certificatePem);
      writeFileSync(join(sources, CERTIFICATE), certificatePem);
      writeFileSync(join(sources, KEY), privateKeyPem);
      const redirects = Object.keys(TUNNELS).map((name) => `https://${name}.ngrok-agent.com/ngrok/oidc/callback`);
      await provider.prepare(sources, redirects);
    },
    gateway: (sources) => ({
      GATEWAY_POLICY_NETWORKS: '127.0.0.0/8',
      NODE_EXTRA_CA_CERTS: join(sources, AUTHORITY),
    }),
    run: (lab, sources) => withAgent(lab, sources, (agent) => signIns(provider, lab, sources, agent)),
    expected: provider.expected,
  };
}

async function signIns(provider: Provider, lab: Lab, sources: string, agent: string): Promise<Case[]> {
  const upstream = createServer((req, res) => void res.end(`${req.headers['x-user']} sees ${req.url}`));
  const port = await listening(upstream);
  for (const [name, config] of Object.entries(TUNNELS)) {
    const signIn = {
      issuer_url: provider.issuer,
      ...CLIENT,
      ...config,
    };
    const user = { 'x-user': `\${actions.ngrok.oidc.identity.email}` };
    const actions = [
      { type: 'openid-connect', config: signIn },
      { type: 'add-headers', config: { headers: user } },
    ];
    const tunnel = { forwards_to: port, domain: `${name}.${lab.domain}`, policy: { on_http_request: [{ actions }] } };
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(`${agent}/tunnels`, { method: 'POST', headers, body: JSON.stringify(tunnel) });
    if (!answer.ok) throw new Error(await answer.text());
  }
  const browser = await launchBrowser(lab.domain);
  const newPage = async () => (await browser.newContext({ ignoreHTTPSErrors: true })).newPage();
  const page = await newPage();
  const context = page.context();
  const running = new Running(provider, sources);
  const at = (name: keyof typeof TUNNELS, path: string) => `https://${name}.${lab.domain}${path}`;
  const isIn = (url: string) => context.request.get(url, { maxRedirects: 0 }).then((answer) => answer.ok());
  const textOf = (of: Page) => of.locator('body').innerText();
  const shows = async (of: Page, expected: string) => {
    const text = await textOf(of);
    if (!text.includes(expected)) throw new Error(`${of.url()} shows:\n${text}`);
  };
  /** Signs in, and agrees where the provider does not remember that from before. */
  const signIn = async (of: Page, back: string) => {
    await provider.signIn(of);
    const agree = of.getByRole('button', { name: provider.agree });
    await agree.or(of.locator('body:not(:has(form))')).first().waitFor();
    if (await agree.isVisible()) await agree.click();
    await of.waitForURL(back);
  };
  const openPage = async (url: string) => {
    const opened = await newPage();
    await opened.goto(url);
    return opened;
  };
  const steps: Record<string, () => Promise<void>> = {
    async decline() {
      await page.goto(at('cam', '/'));
      await provider.signIn(page);
      await page.getByRole('button', { name: provider.decline }).click();
      await page.waitForURL(at('cam', '/ngrok/**'));
      await shows(page, 'ERR_NGROK_3114');
    },
    async 'sign in, and agree'() {
      const other = await openPage(at('cam', '/first?q=1'));
      await signIn(other, at('cam', '/first?q=1'));
      await shows(other, `${EMAIL} sees /first?q=1`);
      await other.context().close();
    },
    async 'the answer of the provider used again'() {
      let callback = '';
      page.on('request', (request) => {
        if (request.url().includes('/ngrok/oidc/callback')) callback = request.url();
      });
      await page.goto(at('cam', '/'));
      await signIn(page, at('cam', '/'));
      const tab = await context.newPage();
      await tab.goto(callback);
      await shows(tab, 'ERR_NGROK_31');
      await tab.close();
      if (!(await isIn(at('cam', '/')))) throw new Error('the session has ended');
    },
    async 'a wrong secret'() {
      const other = await openPage(at('wrong', '/'));
      await signIn(other, at('wrong', '/ngrok/**'));
      await shows(other, 'ERR_NGROK_3125');
      await other.context().close();
    },
    async expiry() {
      const other = await openPage(at('short', '/'));
      await signIn(other, at('short', '/'));
      const get = () => other.context().request.get(at('short', '/'), { maxRedirects: 0 });
      await until(async () => !(await get()).ok(), 'the session to end', { everyMs: 200 });
      await other.context().close();
    },
    async 'sign out, and in again'() {
      await page.goto(at('cam', '/ngrok/logout'));
      await shows(page, 'Signed out');
      await page.getByRole('link', { name: 'Sign in' }).click();
      // The provider asks who it is, although it knows.
      await signIn(page, at('cam', '/'));
      await shows(page, `${EMAIL} sees /`);
    },
    async 'renewal by six requests at once'() {
      const renewedAt = performance.now() + RENEWED_MS;
      await until(
        async () => {
          const answers = await Promise.all(Array.from({ length: 6 }, () => isIn(at('cam', '/'))));
          if (answers.includes(false)) throw new Error('a request was redirected');
          return performance.now() > renewedAt;
        },
        'an interval to pass',
        { withinMs: RENEWED_MS + 30_000, everyMs: 1000 },
      );
    },
    async 'an outage'() {
      await running.stop();
      if (!(await isIn(at('cam', '/')))) throw new Error('who was in is out');
      await running.start(context);
      if (!(await isIn(at('cam', '/')))) throw new Error('who was in is out');
      const other = await openPage(at('cam', '/'));
      await signIn(other, at('cam', '/'));
      await other.context().close();
    },
    async 'a removed person'() {
      await provider.remove(context, () => running.stop().then(() => running.start(context)), sources);
      await until(async () => !(await isIn(at('cam', '/'))), 'the session to end', {
        withinMs: RENEWED_MS,
        everyMs: 1000,
      });
    },
  };
  const cases: Case[] = [];
  try {
    await running.start(context);
    for (const [name, take] of Object.entries(steps)) {
      const failure = await take().then(
        () => null,
        async (error) => `${error}\n${page.url()}\n${await textOf(page).catch(String)}`,
      );
      cases.push({ name, status: failure === null ? 'passed' : 'failed', output: failure ?? '' });
    }
  } finally {
    await browser.close();
    await running.stop();
    upstream.close();
  }
  return cases;
}

const KEYCLOAK = 'keycloak-26.7.3';

const keycloakProvider: Provider = {
  title: 'Keycloak 26.7.3',
  needs: '`java` 17 or newer, `mvn`, `unzip`, `chromium`, repo1.maven.org',
  missing: () =>
    firstOf(programMissing('java', '-version'), programMissing('mvn', '-version'), programMissing('unzip', '-v')),
  issuer: `${ORIGIN}/realms/devices`,
  ready: '/realms/devices',
  async prepare(folder, redirectUris) {
    const artifact = '-Dartifact=org.keycloak:keycloak-quarkus-dist:26.7.3:zip';
    await mustRun(['mvn', '--batch-mode', 'dependency:copy', '-DoutputDirectory=.', artifact], { cwd: folder });
    await mustRun(['unzip', '-q', 'keycloak-quarkus-dist-26.7.3.zip'], { cwd: folder });
    const jo = {
      ...{ username: 'jo', email: EMAIL, emailVerified: true, enabled: true, firstName: 'Jo', lastName: 'Example' },
      credentials: [{ type: 'password', value: PASSWORD }],
    };
    const client = {
      ...{ clientId: CLIENT.client_id, secret: CLIENT.client_secret, redirectUris },
      ...{ protocol: 'openid-connect', publicClient: false, standardFlowEnabled: true, consentRequired: true },
    };
    const realm = { realm: 'devices', enabled: true, clients: [client], users: [jo] };
    mkdirSync(join(folder, KEYCLOAK, 'data/import'), { recursive: true });
    writeFileSync(join(folder, KEYCLOAK, 'data/import/devices.json'), JSON.stringify(realm));
  },
  command: (folder) => ({
    command: [
      ...[join(folder, KEYCLOAK, 'bin/kc.sh'), 'start-dev', '--import-realm', `--hostname=${ORIGIN}`],
      ...['--http-host=127.0.0.1', '--http-port=8180', `--https-port=${PORT}`],
      `--https-certificate-file=${join(folder, CERTIFICATE)}`,
      `--https-certificate-key-file=${join(folder, KEY)}`,
    ],
    env: { KC_BOOTSTRAP_ADMIN_USERNAME: 'admin', KC_BOOTSTRAP_ADMIN_PASSWORD: PASSWORD },
  }),
  async signIn(page) {
    if (await page.locator('#username').isVisible()) await page.locator('#username').fill('jo');
    await page.locator('#password').fill(PASSWORD);
    await page.locator('#kc-login').click();
  },
  agree: 'Yes',
  decline: 'No',
  expected: {},
  async remove({ request }) {
    const form = { grant_type: 'password', client_id: 'admin-cli', username: 'admin', password: PASSWORD };
    const token = await request.post(`${ORIGIN}/realms/master/protocol/openid-connect/token`, { form });
    const headers = { authorization: `Bearer ${((await token.json()) as { access_token: string }).access_token}` };
    const users = `${ORIGIN}/admin/realms/devices/users`;
    const [jo] = (await (await request.get(`${users}?username=jo`, { headers })).json()) as { id: string }[];
    const removed = await request.delete(`${users}/${jo?.id}`, { headers });
    if (!removed.ok()) throw new Error(await removed.text());
  },
};

const dexProvider: Provider = {
  title: 'Dex',
  needs: '`dex` 2.45, `chromium`',
  missing: () => programMissing('dex', 'version'),
  issuer: `${ORIGIN}/dex`,
  ready: '/dex/.well-known/openid-configuration',
  prepare: async (folder, redirects) =>
    writeFileSync(join(folder, 'dex.json'), JSON.stringify(dexSettings(folder, redirects))),
  command: (folder) => ({ command: ['dex', 'serve', join(folder, 'dex.json')] }),
  async signIn(page) {
    await page.locator('#login').fill(EMAIL);
    await page.locator('#password').fill(PASSWORD);
    await page.locator('#submit-login').click();
  },
  agree: 'Grant Access',
  decline: 'Cancel',
  expected: { decline: 'Dex shows an error of its own, and people do not return' },
  async remove(_context, restart, folder) {
    const file = join(folder, 'dex.json');
    const settings = JSON.parse(readFileSync(file, 'utf8')) as object;
    writeFileSync(file, JSON.stringify({ ...settings, staticPasswords: [] }));
    await restart();
  },
};

function dexSettings(folder: string, redirectURIs: string[]) {
  return {
    issuer: dexProvider.issuer,
    storage: { type: 'sqlite3', config: { file: join(folder, 'dex.db') } },
    web: { https: `127.0.0.1:${PORT}`, tlsCert: join(folder, CERTIFICATE), tlsKey: join(folder, KEY) },
    staticClients: [{ id: CLIENT.client_id, secret: CLIENT.client_secret, name: 'Cameras', redirectURIs }],
    enablePasswordDB: true,
    // The session of a removed person ends when it expires.
    expiry: { idTokens: '2m' },
    staticPasswords: [{ email: EMAIL, hash: HASH, username: 'jo', userID: '08a8684b-db88-4b73-90a9-3cd1661f5466' }],
  };
}

/** Of the password, by bcrypt. */
const HASH = '$2a$10$eEkga5fN9jq7cotwW/5RWurqdvBWrtL0xPZ/kyr4R1eQjj1w99BjK';

export const keycloak = identityProvider(keycloakProvider);
export const dex = identityProvider(dexProvider);
