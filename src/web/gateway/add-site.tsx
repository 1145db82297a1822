import { type ReadonlySignal, useSignal, useSignalEffect } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import type { BotUser } from '../../management/resources/bot-user.ts';
import type { ReservedDomain } from '../../management/resources/reserved-domain.ts';
import { ApiProblem } from '../ui/api.ts';
import { Button, ButtonLink, CopyButton } from '../ui/button.tsx';
import { Choice, setter } from '../ui/field.tsx';
import { Notice, ProblemNotice } from '../ui/notice.tsx';
import { QrCode } from '../ui/qr-code.tsx';
import { linkTo, route, useTitle } from '../ui/router.ts';
import { attempt, useSubmission } from '../ui/submission.ts';
import { DnsRecords } from './dns-records.tsx';
import { type FormField, FormFieldInput, type FormValues, placedIn, type ShownOnce } from './form.tsx';
import { PagedList } from './paged-list.ts';
import { pageTitle } from './section.ts';
import { AGENTS_ADDRESS, agentsSection } from './sections/agents-section.tsx';
import { devicesSection, INVITE_FIELDS, INVITE_VALUES, inviteBody, joinCommand } from './sections/devices-section.tsx';
import { CERTIFICATE_POLICY, domainsSection } from './sections/domains-section.tsx';
import { api, type News } from './session.ts';

const VIEW = 'add-site';
/** The gateway's own certificate covers the name, or reserved already. */
const NO_POLICY_NEEDED = ['ERR_NGROK_439', 'ERR_NGROK_447'];
const RESERVED = 'ERR_NGROK_413';
const MOST = 20_000;
/** Reserved domains that are offered. */
const OFFERED = 5;

/** Leads from a domain to devices. The domain is in the address, so that one can come back when DNS is ready. */
export function AddSite({ news }: { news: ReadonlySignal<News> }): JSX.Element {
  const [, id] = route.value;
  useTitle(pageTitle('Add a site'));
  return (
    <section aria-labelledby="add-site">
      <div class="section-head">
        <h2 id="add-site">Add a site</h2>
      </div>
      <p>
        A site is a place with devices. It gets a domain, whose names its devices serve, and a way for them to join.
      </p>
      {id === undefined ? <ChooseDomain news={news} /> : <Site key={id} id={id} news={news} />}
    </section>
  );
}

const DOMAIN: FormField = {
  name: 'domain',
  label: 'Domain of the site',
  hint: 'Such as site-a.example.com. Devices get names below it: cam.site-a.example.com.',
  kind: 'text',
  required: 'Enter a domain, such as site-a.example.com.',
};

function ChooseDomain({ news }: { news: ReadonlySignal<News> }): JSX.Element {
  const name = useSignal('');
  const { busy, problem: raised, onSubmit } = useSubmission();
  const problem = raised && placedIn([DOMAIN], {}, raised);
  const choose = async () => {
    const { id } = await reserve(wildcardOf(name.value));
    window.location.hash = linkTo(VIEW, id);
  };
  return (
    <Step number={1} title="Domain">
      <form onSubmit={onSubmit(choose)} noValidate>
        {problem && (
          <ProblemNotice
            title="The domain was not reserved"
            problem={problem}
            isMarked={(place) => place === DOMAIN.name}
          />
        )}
        <FormFieldInput
          field={DOMAIN}
          isFirst={false}
          value={name.value}
          onInput={setter(name)}
          problem={problem?.details[DOMAIN.name]}
        />
        <Button kind="primary" type="submit" busy={busy}>
          Reserve domain
        </Button>
      </form>
      <Existing news={news} />
    </Step>
  );
}

/** The newest wildcard domains. */
function Existing({ news }: { news: ReadonlySignal<News> }): JSX.Element | null {
  const found = useSignal<readonly ReservedDomain[]>([]);
  useSignalEffect(() => {
    news.value;
    const list = domainList();
    void list.reload().then(() => {
      found.value = list.items.value.filter(({ domain }) => domain.startsWith('*.')).slice(0, OFFERED);
    });
  });
  if (found.value.length === 0) return null;
  return (
    <>
      <p class="hint">Or continue with a domain that is reserved:</p>
      <ul class="plain">
        {found.value.map(({ id, domain }) => (
          <li key={id}>
            <a href={linkTo(VIEW, id)}>{domain}</a>
          </li>
        ))}
      </ul>
    </>
  );
}

function Site({ id, news }: { id: string; news: ReadonlySignal<News> }): JSX.Element {
  const domain = useSignal<ReservedDomain | null>(null);
  const problem = useSignal<ApiProblem | null>(null);
  const load = () =>
    attempt(problem, async () => {
      domain.value = await api<ReservedDomain>('GET', `${domainsSection.path}/${encodeURIComponent(id)}`);
    });
  useSignalEffect(() => {
    news.value;
    void load();
  });
  const found = domain.value;
  return (
    <>
      {problem.value && <ProblemNotice title="It could not be loaded" problem={problem.value} />}
      {!found && !problem.value && <p class="with-spinner">Loading…</p>}
      {(found || problem.value) && (
        <Step number={1} title="Domain">
          {found && <Notice tone="good">{found.domain} is reserved.</Notice>}
          <ButtonLink href={linkTo(VIEW)}>Choose another domain</ButtonLink>
        </Step>
      )}
      {found && (
        <Step number={2} title="DNS and certificate">
          <DnsRecords domain={found} changed={() => void load()} />
          {found.cname_target !== null && (
            <p class="hint">DNS takes time. Go on meanwhile; this page stays at its address.</p>
          )}
        </Step>
      )}
      {found && <SiteDevices domain={found} />}
    </>
  );
}

function wildcardOf(name: string): string {
  const trimmed = name.trim();
  return trimmed === '' || trimmed.startsWith('*.') ? trimmed : `*.${trimmed}`;
}

function domainList(): PagedList<ReservedDomain> {
  return new PagedList<ReservedDomain>(domainsSection);
}

/**
 * Reserves a domain with automatic certificates, where the gateway's own one does not cover it; or finds it.
 *
 * @throws {ApiProblem}
 */
async function reserve(domain: string): Promise<Pick<ReservedDomain, 'id'>> {
  const create = (policy: object) => api<ReservedDomain>('POST', domainsSection.path, { domain, ...policy });
  try {
    return await create({ certificate_management_policy: CERTIFICATE_POLICY }).catch((error: unknown) => {
      if (error instanceof ApiProblem && NO_POLICY_NEEDED.includes(error.code ?? '')) return create({});
      throw error;
    });
  } catch (error) {
    if (!(error instanceof ApiProblem) || error.code !== RESERVED) throw error;
    const list = domainList();
    await list.loadUpTo(MOST);
    const found = list.items.value.find((each) => each.domain === domain.toLowerCase());
    if (!found) throw error;
    return found;
  }
}

type Way = 'invite' | 'authtoken';
/** What the devices run. */
const WAYS: readonly { value: Way; label: string; hint: string }[] = [
  {
    value: 'invite',
    label: 'This agent',
    hint: 'One code, with which each device joins and gets an authtoken of its own.',
  },
  {
    value: 'authtoken',
    label: 'Another client',
    hint: 'A bot user and an authtoken, to copy into the settings of one device.',
  },
];
const NO_CA = "# NGROK_CA_CERT=gateway-ca.pem  (a copy of the gateway's ca.pem, if it has no public certificate)";
const FIELDS: Record<Way, readonly FormField[]> = {
  invite: INVITE_FIELDS,
  authtoken: [
    {
      name: 'bot',
      member: 'name',
      label: 'Name of the bot user',
      hint: 'It owns the authtoken. Deactivating it blocks the whole site.',
      kind: 'text',
      required: 'Enter a name, such as that of the site.',
    },
  ],
};

/** The last steps of adding a site: the permission for its devices, and what to do on them. */
function SiteDevices({ domain: { domain } }: { domain: ReservedDomain }): JSX.Element {
  const way = useSignal<Way>('invite');
  const values = useSignal<FormValues>({ ...INVITE_VALUES, bot: domain.replace(/^\*\./, '') });
  const { busy, problem: raised, onSubmit } = useSubmission();
  const fields = FIELDS[way.value];
  const problem = raised && placedIn(fields, values.value, raised);
  /** Kept for another attempt. */
  const bot = useSignal<BotUser | null>(null);
  const secret = useSignal<ShownOnce | null>(null);
  const set = (name: string) => (value: string) => {
    values.value = { ...values.value, [name]: value };
  };
  const createAuthtoken = async (): Promise<ShownOnce> => {
    const name = values.value.bot?.trim() ?? '';
    if (bot.value?.name !== name) bot.value = await api<BotUser>('POST', '/bot_users', { name });
    const body = { owner_id: bot.value?.id, acl: [`bind:${domain}`], description: name };
    const { token } = await api<{ token: string }>('POST', '/credentials', body);
    const lines = envLines(token, domain);
    return { text: lines, qr: lines };
  };
  const create = async () => {
    secret.value =
      way.value === 'authtoken'
        ? await createAuthtoken()
        : joinCommand(await api('POST', '/enrolment_keys', inviteBody({ ...values.value, site: domain })));
  };
  return (
    <>
      <Step number={3} title="Permission for devices">
        <form onSubmit={onSubmit(create)} noValidate>
          <Choice
            label="Devices run"
            value={way.value}
            options={WAYS}
            onChange={(value) => {
              way.value = value;
              secret.value = null;
            }}
          />
          {fields.map((field) => (
            <FormFieldInput
              key={field.name}
              field={field}
              isFirst={false}
              value={values.value[field.name] ?? ''}
              onInput={set(field.name)}
              problem={problem?.details[field.name]}
            />
          ))}
          {problem && (
            <ProblemNotice
              title={way.value === 'invite' ? 'The code was not created' : 'The authtoken was not created'}
              problem={problem}
              isMarked={(place) => fields.some(({ name }) => name === place)}
            />
          )}
          <Button kind="primary" type="submit" busy={busy}>
            {way.value === 'invite' ? 'Create code' : 'Create authtoken'}
          </Button>
        </form>
      </Step>
      {secret.value && <Lines way={way.value} secret={secret.value} />}
    </>
  );
}

function Lines({ way, secret: { text: lines, qr } }: { way: Way; secret: ShownOnce }): JSX.Element {
  return (
    <Step number={4} title="Set up the devices">
      <Notice tone="warning">Copy it now: it is shown only once.</Notice>
      <p>{way === 'invite' ? 'Run this on each device:' : 'Put these lines into the file .env of the device:'}</p>
      <div class="with-copy">
        <pre>{lines}</pre>
        <CopyButton text={lines} what="Lines for the device" />
      </div>
      {way === 'invite' && <p class="hint">Or scan the code:</p>}
      {qr !== undefined && <QrCode text={qr} label="Lines for the device" />}
      <p class="hint">The device appears here when it has joined:</p>
      <div class="actions">
        <ButtonLink href={linkTo(way === 'invite' ? 'devices' : 'agents')}>
          {(way === 'invite' ? devicesSection : agentsSection).title}
        </ButtonLink>
        <ButtonLink href={linkTo('add-site')}>Add another site</ButtonLink>
      </div>
    </Step>
  );
}

/** What `device-agent setup` prints for a device. */
function envLines(token: string, domain: string): string {
  const agentDomain = domain.startsWith('*.') ? [`AGENT_DOMAIN=${domain.replace(/^\*/, 'agent')}`] : [];
  return [`NGROK_AUTHTOKEN=${token}`, `NGROK_SERVER_ADDR=${AGENTS_ADDRESS}`, NO_CA, ...agentDomain].join('\n');
}

/** A step of adding a site. */
function Step({
  number,
  title,
  children,
}: {
  number: number;
  title: string;
  children: ComponentChildren;
}): JSX.Element {
  return (
    <section class="card step" aria-labelledby={`step-${number}`}>
      <h3 id={`step-${number}`}>
        {number}. {title}
      </h3>
      {children}
    </section>
  );
}
