import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { type JoinFiles, joinAtFirstStart, joinSite } from '../../../src/agent/join/join-site.ts';
import { NO_PROXIES } from '../../../src/lib/network/proxy-rules.ts';
import { systemClock } from '../../../src/lib/time/clock.ts';
import { formatJoinCode, type JoinCode, parseJoinCode } from '../../../src/management/join-code.ts';
import { loadSettings } from '../../../src/settings/agent-settings.ts';
import { loadFirstStart } from '../../../src/settings/first-start-settings.ts';
import { inviteTo } from '../../support/enrolment.ts';
import { startTestGateway } from '../../support/gateway.ts';
import { recordingLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

it('a card with a code on its boot partition joins, and another card becomes another device', async () => {
  const gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  const bootFile = join(temporaryFolder(), 'device-agent.join');
  writeFileSync(bootFile, `${await inviteTo(gateway)}\n`);
  const { log, lines } = recordingLog();
  const names = [];
  for (const folder of [temporaryFolder(), temporaryFolder()]) {
    const env = { AGENT_NAME: 'card', AGENT_GATEWAY: 'remote' };
    for (let boot = 0; boot < 2; boot += 1) {
      const start = loadFirstStart(env, folder);
      if (start) await joinAtFirstStart(start, log, bootFile);
    }
    const { gateway: settings, api, connector, site } = loadSettings(env, folder);
    expect([settings.kind, connector, site?.domain]).toEqual(['remote', 'native', 'site.localhost']);
    names.push([api.domain, site?.deviceName]);
  }
  // AGENT_NAME of an image is only the wanted name.
  expect(names).toEqual([
    ['agent-card.site.localhost', 'card'],
    ['agent-card-2.site.localhost', 'card-2'],
  ]);
  expect(lines.filter(({ msg }) => msg === 'site joined')).toHaveLength(2);
  expect(JSON.stringify(lines)).not.toContain(readFileSync(bootFile, 'utf8').trim().slice(-20));
});

it('a joined device whose enrolment is damaged keeps its settings, and does not join again', async () => {
  const gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  const folder = temporaryFolder();
  const env = { AGENT_JOIN_CODE: await inviteTo(gateway), AGENT_NAME: 'card' };
  const { log, lines } = recordingLog();
  const boot = async () => {
    const start = loadFirstStart(env, folder);
    if (start) await joinAtFirstStart(start, log, '');
    return loadSettings(env, folder).site?.deviceName;
  };
  expect(await boot()).toBe('card');
  const file = join(folder, 'data', 'enrolment.json');
  writeFileSync(file, readFileSync(file, 'utf8').replace('"machine"', '"mbchine"'));
  expect(await boot()).toBe('card');
  expect(lines.at(-1)?.msg).toBe('enrolment unreadable; this device keeps its settings');
  expect(lines.filter(({ msg }) => msg === 'site joined')).toHaveLength(1);
});

it('a joined device goes on with its settings when the code of another site is refused', async () => {
  const gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  const folder = temporaryFolder();
  const { log, lines } = recordingLog();
  const code = await inviteTo(gateway);
  const boot = async (AGENT_JOIN_CODE: string) => {
    const start = loadFirstStart({ AGENT_JOIN_CODE, AGENT_NAME: 'card' }, folder);
    if (start) await joinAtFirstStart(start, log, '');
    return lines.at(-1)?.msg;
  };
  expect(await boot(code)).toBe('site joined');
  const other = parseJoinCode(await inviteTo(gateway, { site: '*.other.localhost' })) as JoinCode;
  const wrong = formatJoinCode({ ...other, secret: `${other.secret.slice(0, -4)}0000` });
  expect(await boot(wrong)).toBe('not joined again; this device keeps its settings');
  // What was interrupted is finished with a code that holds.
  expect(await boot(formatJoinCode(other))).toBe('site joined');
  expect(loadSettings({}, folder).site?.domain).toBe('other.localhost');
});

it('a device that joined at its first start moves by command, or by the code of another site, and stays the same one', async () => {
  const gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  const folder = temporaryFolder();
  const dataDir = join(folder, 'data');
  const boot = async (code: string) => {
    const start = loadFirstStart({ AGENT_JOIN_CODE: code, AGENT_NAME: 'card' }, folder);
    if (start) await joinAtFirstStart(start, recordingLog().log, '');
    return loadSettings({}, folder).site?.domain;
  };
  const here = await inviteTo(gateway);
  const there = await inviteTo(gateway, { site: '*.there.localhost' });
  const devices = () => gateway.store.devices.page(null, 9).map(({ id, site, name }) => ({ id, site, name }));
  expect(await boot(here)).toBe('site.localhost');
  const [{ id } = { id: '' }] = devices();
  rmSync(join(dataDir, 'joined.env'));
  expect(await boot(here)).toBe('site.localhost');
  // The environment says where it belongs, also when it says so again.
  expect(await boot(there)).toBe('there.localhost');
  expect(await boot(here)).toBe('site.localhost');
  expect(devices()).toEqual([{ id, site: 'site.localhost', name: 'card' }]);

  const config = join(folder, 'etc');
  const files: JoinFiles = {
    ...{ installation: join(config, 'enrolment.json'), settings: join(config, 'settings.env'), settingsMode: 0o640 },
    ...{ authtoken: join(config, 'authtoken'), ca: join(config, 'gateway-ca.pem'), dataDir },
  };
  mkdirSync(config);
  writeFileSync(files.settings, `AGENT_JOIN_CODE=${here}\nLOG_LEVEL=warn\n`);
  const byCommand = (code: string) =>
    joinSite(code, files, { name: 'card', proxies: NO_PROXIES, clock: systemClock, deadline: 0, onWait: () => {} });
  expect(await byCommand(there)).toMatchObject({ id, site: 'there.localhost' });
  expect(devices()).toEqual([{ id, site: 'there.localhost', name: 'card' }]);
  expect(readFileSync(files.settings, 'utf8')).toMatch(/^LOG_LEVEL=warn\n(?!.*JOIN_CODE)/s);
  // What it had got there would override its name.
  expect(readdirSync(dataDir).filter((name) => /joined|enrol|ca.pem/.test(name))).toEqual([]);
  expect(await byCommand(there)).toMatchObject({ id });
});

it('an agent with an authtoken or an embedded gateway does not join', () => {
  for (const env of [{ NGROK_AUTHTOKEN: 'a_b' }, { AGENT_GATEWAY: 'embedded' }, { NGROK_AUTHTOKEN_FILE: 'x' }]) {
    expect(loadFirstStart({ ...env, AGENT_JOIN_CODE: 'join-x' }, temporaryFolder())).toBeNull();
  }
});
