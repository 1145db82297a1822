import { readFileSync } from 'node:fs';
import { Command } from 'commander';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { shareLinksAt } from '../../src/agent/join/gateway-calls.ts';
import { joinSite } from '../../src/agent/join/join-site.ts';
import { addGatewayCommand } from '../../src/commands/gateway/gateway-commands.ts';
import { issueCredential } from '../../src/gateway/store/tokens.ts';
import { NO_PROXIES } from '../../src/lib/network/proxy-rules.ts';
import { systemClock } from '../../src/lib/time/clock.ts';
import { loadGatewayServerSettings } from '../../src/settings/gateway-settings.ts';
import { inviteTo } from '../support/enrolment.ts';
import { agentSession, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { GatewayClient } from '../support/gateway-client.ts';
import { exchange } from '../support/https-exchange.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { type Page, WebClient } from '../support/web-client.ts';

let gateway: TestGateway;
let api: GatewayClient;
beforeAll(async () => {
  gateway = await startTestGateway();
  api = await GatewayClient.of(gateway);
});
afterAll(() => gateway.close());

let clients = 0;
/** Where the test's requests come from: attempts are counted by address. */
let address = '';
beforeEach(() => {
  clients += 1;
  address = `127.0.1.${clients}`;
});
const browser = () => new WebClient((url, request) => exchange(url, request, address));

const answer = (body: string) => ({ actions: [{ type: 'custom-response', config: { body } }] });
const share = (config = {}) => ({ actions: [{ type: 'gateway-share-links', config }] });
const policyOf = (...rules: object[]) => JSON.stringify({ on_http_request: rules });
const SEES_COOKIES = answer(`cookies: \${'cookie' in req.headers}`);

let names = 0;
/** An endpoint that only links open; without a rule before it, its answer says whether the upstream would see cookies. */
async function endpoint(rules: object[] = [share(), SEES_COOKIES]): Promise<string> {
  const host = `shared${names++}.localhost`;
  const { status } = await api.call('POST', '/endpoints', {
    url: `https://${host}`,
    traffic_policy: policyOf(...rules),
  });
  expect(status).toBe(201);
  return `https://${host}:${gateway.httpsPort}`;
}

async function linkTo(url: string, more = {}): Promise<{ id: string; link: string }> {
  const { body } = await api.call('POST', '/share_links', { url, expires_in: 3600, ...more });
  expect(body).toMatchObject({ url, max_uses: null, uses: 0, created_by: expect.stringMatching(/^ak_/), ...more });
  return { id: String(body.id), link: String(body.link) };
}

const press = (client: WebClient, link: string) => client.visit(link, { method: 'POST' });
const outcome = ({ status, headers, body }: Page) => ({ status, code: headers['ngrok-error-code'], body });
const rows = () => gateway.store.shareLinks;

async function changeRow(id: string, change: object): Promise<void> {
  await gateway.store.database.write(() => {
    const row = rows().get(id);
    if (row) rows().update({ ...row, ...change });
  });
}

describe('a share link', () => {
  it('is opened by the button of its page, and lets this browser in, whose cookie the upstream does not see', async () => {
    const url = await endpoint();
    const { link, id } = await linkTo(url, { max_uses: 1 });
    const jo = browser();
    expect(await jo.visit(url)).toMatchObject({
      status: 403,
      headers: { 'ngrok-error-code': 'ERR_GATEWAY_SHARE_LINK_NEEDED' },
    });
    const page = await jo.visit(link);
    expect(page).toMatchObject({ status: 200, body: expect.stringContaining('<form method="post"><button>Open<') });
    // The page that opens next must not learn the link.
    expect(page.headers['referrer-policy']).toBe('no-referrer');
    expect(rows().get(id)?.uses).toBe(0);
    const opened = await press(jo, link);
    expect(opened).toMatchObject({ status: 303, headers: { location: '/', 'referrer-policy': 'no-referrer' } });
    expect(await jo.follow(opened)).toMatchObject({ status: 200, body: 'cookies: false' });
    expect(jo.cookies.every(({ name, isHostOnly }) => name.startsWith('__Host-') && isHostOnly)).toBe(true);
    // A bookmark of the link goes on to the endpoint, and a button that is pressed twice takes no second use.
    expect((await jo.visit(link)).status).toBe(303);
    expect((await press(jo, link)).status).toBe(303);
    expect(rows().get(id)).toMatchObject({ uses: 1, last_used_at: expect.any(String) });
  });

  it('opens for one of two browsers at once when it is for one', async () => {
    const url = await endpoint();
    const { link } = await linkTo(url, { max_uses: 1 });
    const both = [browser(), browser()];
    for (const each of both) await each.visit(link);
    const statuses = await Promise.all(both.map(async (each) => (await press(each, link)).status));
    expect(statuses.sort()).toEqual([303, 403]);
  });

  it('is refused in the same way whatever is wrong with it', async () => {
    const [url, other] = [await endpoint(), await endpoint()];
    const { link, id } = await linkTo(url, { max_uses: 1 });
    const path = new URL(link).pathname;
    const [, ksuid = '', secret = ''] = /\/(\w{27})_(\w+)$/.exec(path) ?? [];
    const [expired, revoked, used, notOurs] = [
      await linkTo(url),
      await linkTo(url),
      await linkTo(url),
      await linkTo(url),
    ];
    await changeRow(expired.id, { expires_at: '2026-01-01T00:00:00Z' });
    await changeRow(used.id, { max_uses: 3, uses: 3 });
    // As one that was made for an earlier holder of the name.
    await changeRow(notOurs.id, { owner: 'bot_1' });
    await api.call('DELETE', `/share_links/${revoked.id}`);
    const wrong = [
      `${url}/ngrok/share/guess`,
      `${url}/ngrok/share/${ksuid}_${secret.split('').reverse().join('')}`,
      `${link}x`,
      other + path,
      ...[expired, revoked, used, notOurs].map((each) => each.link),
    ];
    const answers: object[] = [];
    for (const each of wrong) {
      answers.push(outcome(await browser().visit(each)), outcome(await press(browser(), each)));
    }
    const refused = {
      status: 403,
      code: 'ERR_GATEWAY_SHARE_LINK_INVALID',
      body: expect.stringContaining('does not work'),
    };
    expect(answers).toEqual(answers.map(() => refused));
    expect(new Set(answers.map((each) => JSON.stringify(each))).size).toBe(1);
    expect(rows().get(id)?.uses).toBe(0);
  });

  it('lets a browser in until it is revoked or expires, at its own host, with the cookie as it was', async () => {
    const [url, other] = [await endpoint(), await endpoint()];
    const [first, second] = [await linkTo(url), await linkTo(url)];
    const jo = browser();
    await press(jo, first.link);
    const sent = jo.cookies.map(({ name, value }) => `${name}=${value}`).join('; ');
    const statusWith = async (cookie: string, at = url) => (await browser().visit(at, { headers: { cookie } })).status;
    expect(await statusWith(sent)).toBe(200);
    expect(await statusWith(sent, other)).toBe(403);
    expect(await statusWith(sent.slice(0, -8))).toBe(403);
    // The sealed value of one link, under the name of another.
    expect(await statusWith(sent.replace(/share-\w{27}/, `share-${second.id.slice(3)}`))).toBe(403);
    await api.call('DELETE', `/share_links/${first.id}`);
    expect(await statusWith(sent)).toBe(403);
    await press(jo, second.link);
    expect((await jo.visit(url)).status).toBe(200);
    await changeRow(second.id, { expires_at: '2026-01-01T00:00:00Z' });
    expect((await jo.visit(url)).status).toBe(403);
  });

  it('opens the endpoints of its owner only: another one may have the name later', async () => {
    const url = await endpoint();
    const { link, id } = await linkTo(url);
    const jo = browser();
    await press(jo, link);
    await changeRow(id, { owner: 'bot_1' });
    expect((await jo.visit(url)).status).toBe(403);
  });

  it('leaves the choice to later rules with enforce: false, here a password for those without a link', async () => {
    const url = await endpoint([
      share({ enforce: false }),
      {
        expressions: ['!actions.ngrok.gateway_share_links.let_in'],
        actions: [{ type: 'basic-auth', config: { credentials: ['jo:a-long-password'] } }],
      },
      answer(`\${actions.ngrok.gateway_share_links.link_id}`),
    ]);
    const { link, id } = await linkTo(url);
    const jo = browser();
    expect((await jo.visit(url)).status).toBe(401);
    await press(jo, link);
    expect(await jo.visit(url)).toMatchObject({ status: 200, body: id });
  });

  it('is forgotten by a browser that signs out, in either order of link and sign-in', async () => {
    const signIn = { actions: [{ type: 'gateway-sign-in' }] };
    const unlessLet = { ...signIn, expressions: ['!actions.ngrok.gateway_share_links.let_in'] };
    const signInFirst = { ...signIn, expressions: ["req.url.path.startsWith('/ngrok/logout')"] };
    for (const rules of [
      [share({ enforce: false }), unlessLet, SEES_COOKIES],
      [signInFirst, share(), SEES_COOKIES],
    ]) {
      const url = await endpoint(rules);
      const { link } = await linkTo(url);
      const jo = browser();
      await press(jo, link);
      expect(await jo.visit(url)).toMatchObject({ status: 200, body: 'cookies: false' });
      expect((await jo.visit(`${url}/ngrok/logout`)).body).toContain('Signed out');
      expect(jo.cookies).toEqual([]);
      expect((await jo.visit(url, { headers: { accept: 'text/html' } })).status).not.toBe(200);
    }
  });

  it('works at two rules with the action, also at one whose expressions exclude its page', async () => {
    const below = (path: string) => ({ ...share(), expressions: [`req.url.path.startsWith('${path}')`] });
    const url = await endpoint([below('/a'), below('/b'), SEES_COOKIES]);
    const { link } = await linkTo(url);
    const jo = browser();
    expect((await jo.visit(`${url}/b`)).status).toBe(403);
    await press(jo, link);
    expect(await jo.visit(`${url}/b`)).toMatchObject({ status: 200, body: 'cookies: false' });
    expect((await browser().visit(`${url}/c`)).status).toBe(200);
  });

  it('is opened at the host and path that the client has asked for, after url-rewrite', async () => {
    const rewrite = { type: 'url-rewrite', config: { from: '.*', to: 'https://other.localhost/inner' } };
    const url = await endpoint([{ actions: [rewrite, ...share().actions] }, SEES_COOKIES]);
    const { link } = await linkTo(url);
    const jo = browser();
    expect((await jo.visit(link)).body).toContain(`shared ${new URL(url).hostname} with you`);
    expect(await jo.follow(await press(jo, link))).toMatchObject({ status: 200, body: 'cookies: false' });
  });

  it('leaves its cookie to no other policy of the name, and no policy sees it', async () => {
    const url = await endpoint();
    const { link } = await linkTo(url);
    const jo = browser();
    await press(jo, link);
    const { body } = await api.call('GET', '/endpoints');
    const { id } = (body.endpoints as { id: string; url: string }[]).find((each) => each.url === url) ?? { id: '' };
    const next = answer(`cookies: \${'cookie' in req.headers} \${size(req.cookies)}`);
    expect((await api.call('PATCH', `/endpoints/${id}`, { traffic_policy: policyOf(next) })).status).toBe(200);
    expect(await jo.visit(url)).toMatchObject({ status: 200, body: 'cookies: false 0' });
  });

  it('is refused with 429 after many attempts from one address', async () => {
    const url = await endpoint();
    const guess = () => browser().visit(`${url}/ngrok/share/guess`);
    const pages = await Promise.all(Array.from({ length: 31 }, guess));
    const codes = pages.map(({ status }) => status).sort();
    expect([codes.at(0), codes.at(-1)]).toEqual([403, 429]);
  });
});

describe('POST /share_links', () => {
  it('answers with the link once; neither lists, the audit log nor errors have it', async () => {
    const url = await endpoint();
    const { link, id } = await linkTo(url, { description: 'for Jo' });
    const secret = link.split('_').at(-1) ?? '';
    const shown = [await api.call('GET', '/share_links'), await api.call('GET', `/share_links/${id}`)];
    expect(shown[1]?.body).toMatchObject({ id, link: null, description: 'for Jo' });
    const logged = gateway.store.auditLog.where('object_id = ?', [id]);
    expect(logged).toMatchObject([{ type: 'share_link_created.v0' }]);
    expect(JSON.stringify([shown, logged])).not.toContain(secret);
  });

  it.each([
    ['https://nobody.localhost', 404, /no tunnel is online/],
    ['http://plain.localhost', 400, /https endpoint/],
    ['https://a.localhost/path', 400, /https endpoint/],
    ['cam', 400, /https endpoint/],
  ])('refuses %s with %i', async (url, status, msg) => {
    const refused = await api.call('POST', '/share_links', { url, expires_in: 60 });
    expect(refused).toMatchObject({ status, body: { msg: expect.stringMatching(msg) } });
  });

  it('says what to do when the policy takes no links', async () => {
    const url = await endpoint([answer('open')]);
    expect(await api.call('POST', '/share_links', { url, expires_in: 60 })).toMatchObject({
      status: 409,
      body: {
        error_code: 'ERR_GATEWAY_NO_SHARE_LINKS',
        msg: expect.stringContaining('add the action gateway-share-links'),
      },
    });
  });
});

it('device-agent gateway share makes a link, shares lists it without its value, and shares revoke ends it', async () => {
  let printed = '';
  onTestFinished(() => void vi.restoreAllMocks());
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    printed += String(text);
    return true;
  });
  const run = async (...args: string[]) => {
    const env = { DATA_DIR: gateway.dataDir, GATEWAY_HTTPS_PORT: String(gateway.httpsPort) };
    const program = new Command().exitOverride().configureOutput({ writeErr: () => {} });
    const settings = () => loadGatewayServerSettings(env, gateway.dataDir);
    addGatewayCommand(program, { run: async () => {}, settings });
    printed = '';
    await program.parseAsync(['gateway', ...args], { from: 'user' });
    return printed;
  };
  const url = await endpoint();
  const made = await run('share', url, '--for', '24h', '--times', '1');
  const [, link = '', id = ''] =
    /^(https:\S+)\n(sl_\w+): works until \S+, for 1 browser; shown only once\n$/.exec(made) ?? [];
  expect((await browser().visit(link)).status).toBe(200);
  const listed = await run('shares');
  expect(listed).toMatch(new RegExp(`^${id} +${url} +0 of 1 .* gateway`, 'm'));
  expect(listed).not.toContain(link.split('_').at(-1));
  await expect(run('share', 'https://nobody.localhost', '--for', '1h')).rejects.toMatchObject({ exitCode: 1 });
  await expect(run('share', url, '--for', '91d')).rejects.toThrow(/--for.*at most 90d/);
  expect(await run('log', '--object', id)).toContain(`share_link_created ${id} ${new URL(url).hostname}`);
  expect(JSON.parse(await run('shares', 'revoke', id, '--json'))).toEqual({ revoked: id });
  expect((await browser().visit(link)).status).toBe(403);
  await expect(run('shares', 'revoke', id)).rejects.toThrow(/share link/);
});

describe('an agent', () => {
  /** A session with an authtoken of an owner, and a tunnel of it that links open. */
  async function agent(authtoken: string, domain: string): Promise<string> {
    const session = await agentSession({ ...gateway, authtoken }).connect();
    onTestFinished(() => session.close().catch(() => {}));
    const listener = await session
      .httpEndpoint()
      .domain(domain)
      .trafficPolicy(policyOf(share(), SEES_COOKIES))
      .listen();
    return String(listener.url());
  }
  const links = (authtoken: string, more = {}) =>
    shareLinksAt({
      ...{ authtoken: () => authtoken, serverAddr: gateway.sessionAddress, authorities: { pem: gateway.sessionCa } },
      ...{ proxies: NO_PROXIES, enrolment: null, apiUrl: gateway.apiUrl, ...more },
    });
  const authtokenOf = async () =>
    (await gateway.store.database.write(() => issueCredential(gateway.store, { acl: [] }))).token;

  it('makes, lists and revokes links to what its own authtoken has online, and to nothing else', async () => {
    const [mine, other] = [await authtokenOf(), await authtokenOf()];
    const [url, others] = [await agent(mine, 'mine.localhost'), await agent(other, 'others.localhost')];
    // The API is found beside the name for sessions, too.
    const beside = { apiUrl: null, serverAddr: `connect.localhost:${gateway.httpsPort}` };
    const [ours, theirs] = [await links(mine, beside), await links(other)];
    const made = await ours.create({ url, expires_in: 60 });
    expect(made).toMatchObject({ url, created_by: expect.stringMatching(/^cr_/) });
    const jo = browser();
    await press(jo, String(made.link));
    expect(await jo.visit(url)).toMatchObject({ status: 200, body: 'cookies: false' });
    await expect(ours.create({ url: others, expires_in: 60 })).rejects.toMatchObject({
      code: 'ERR_GATEWAY_NOT_ONLINE',
    });
    await expect((await links('wrong')).create({ url, expires_in: 60 })).rejects.toMatchObject({
      code: 'ERR_NGROK_105',
    });
    // What the operator makes for it is listed, too.
    const byOperator = await linkTo(url);
    expect((await ours.list()).map(({ id, link }) => [id, link])).toEqual([
      [byOperator.id, null],
      [made.id, null],
    ]);
    expect(await theirs.list()).toEqual([]);
    await expect(theirs.revoke(made.id)).rejects.toMatchObject({ code: 'ERR_NGROK_222' });
    await ours.revoke(made.id);
    expect((await jo.visit(url)).status).toBe(403);
  });

  it('of a device that has joined finds the API by its code, for the gateway that it has joined only', async () => {
    const folder = temporaryFolder();
    const files = { installation: `${folder}/enrolment.json`, settings: `${folder}/settings`, ca: `${folder}/ca.pem` };
    const options = { name: 'cam', proxies: NO_PROXIES, clock: systemClock, deadline: 0, onWait: () => {} };
    const paths = { ...files, settingsMode: 0o600, authtoken: `${folder}/authtoken`, dataDir: folder };
    const { domain } = await joinSite(await inviteTo(gateway), paths, options);
    const authtoken = readFileSync(paths.authtoken, 'utf8').trim();
    const url = await agent(authtoken, domain);
    const joined = { enrolment: files.installation, apiUrl: null };
    expect(await (await links(authtoken, joined)).create({ url, expires_in: 60 })).toMatchObject({ url });
    const elsewhere = links(authtoken, { ...joined, serverAddr: '192.0.2.1:443' });
    await expect(elsewhere).rejects.toThrow(/unknown management API of the gateway at 192\.0\.2\.1/);
  });
});
