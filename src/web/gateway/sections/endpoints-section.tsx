import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { AccessChoices, AccessText } from '../../../gateway/api/dashboard/access-text.ts';
import type { Endpoint } from '../../../management/resources/endpoint.ts';
import type { Person } from '../../../management/resources/person.ts';
import { statusPageIn, statusPagePolicy } from '../../../management/status-page-policy.ts';
import { AccessForm, accessText, isInternal, type NamesFieldProps, takesLinks } from '../../ui/access-form.tsx';
import { AddressView, UnicodeForm } from '../../ui/address.tsx';
import { Button } from '../../ui/button.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { setter, TextArea } from '../../ui/field.tsx';
import { ProblemNotice } from '../../ui/notice.tsx';
import { linkTo } from '../../ui/router.ts';
import { useSubmission } from '../../ui/submission.ts';
import { edited } from '../action-dialogs.tsx';
import { For, optional } from '../cells.tsx';
import { FIGURES, TrafficFigure, TrafficFigures } from '../endpoint-traffic.tsx';
import { LABEL_FILTER, SITE_FILTER } from '../filters.ts';
import { type FormField, FormFieldInput, type FormValues, type Option, textLines } from '../form.tsx';
import { ItemLink } from '../item-link.tsx';
import { LastDayLine } from '../last-day.tsx';
import { loadItems } from '../paged-list.ts';
import { ANNOTATIONS, resource } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';
import { type Action, searchLink } from '../section.ts';
import { api } from '../session.ts';
import { shareForm } from './share-links-section.tsx';

/** What people call an endpoint. */
export const endpointUrl = ({ url, hostport }: Endpoint): string => url ?? hostport ?? '–';
const reachOf = ({ bindings }: Endpoint): string => (bindings?.includes('internal') ? 'Internal' : 'Public');

/** The traffic of TLS edges counts for the tunnels behind them. */
const isCounted = ({ type }: Endpoint): boolean => type !== 'edge';

const isCloud = ({ type }: Endpoint): boolean => type === 'cloud';

/** Of cloud endpoints: a policy serves their clients. */
const FIELDS: readonly FormField[] = [
  {
    name: 'url',
    label: 'URL',
    hint: 'Such as https://app.example.com, https://*.example.com, https://app.internal, or tcp:// for a free port.',
    kind: 'text',
    required: 'Enter a URL, such as https://app.example.com.',
  },
  {
    name: 'traffic_policy',
    label: 'Traffic policy',
    hint: 'In JSON or YAML. It answers, rejects or forwards what clients send.',
    kind: 'code',
    required: 'Enter a policy.',
  },
  {
    name: 'pooling_enabled',
    label: 'Shares its address',
    kind: 'choice',
    options: [
      { value: 'no', label: 'No' },
      { value: 'yes', label: 'Yes', hint: 'Other cloud endpoints may have the same URL; clients take turns.' },
    ],
  },
  ...ANNOTATIONS,
];
const bodyOf = ({ url = '', traffic_policy = '', pooling_enabled }: FormValues): object => ({
  url: url.trim(),
  traffic_policy,
  pooling_enabled: pooling_enabled === 'yes',
});

const STATUS_FIELDS: readonly FormField[] = [
  { name: 'title', label: 'Title of the page', kind: 'text', required: 'Enter a title.' },
  { name: 'text', label: 'Text', hint: 'Optional: below the title.', kind: 'text' },
  {
    name: 'endpoints',
    label: 'Endpoints',
    hint: 'One on each line: its URL, a space, and what the page calls it. Readers see the title only.',
    kind: 'lines',
    required: 'Enter an endpoint, such as https://cam.example.com Camera at the gate.',
  },
];

/** The policy of a cloud endpoint that is a status page. */
const statusPolicy = ({ title = '', text = '', endpoints }: FormValues): string =>
  statusPagePolicy({
    title: title.trim(),
    ...(text.trim() !== '' && { text: text.trim() }),
    endpoints: textLines(endpoints).map((line) => {
      const [url = ''] = line.split(/\s/, 1);
      return { url, title: line.slice(url.length).trim() };
    }),
  });

/** A form for what a status page says, instead of its policy. */
function statusPageActions({ id, traffic_policy }: Endpoint): Action[] {
  const page = statusPageIn(traffic_policy ?? '');
  if (page === null) return [];
  const { title, text = '', endpoints } = page;
  const lines = endpoints.map((each) => `${each.url} ${each.title}`).join('\n');
  const form = {
    label: 'Edit status page',
    fields: STATUS_FIELDS,
    values: { title, text, endpoints: lines },
    body: (values: FormValues) => ({ traffic_policy: statusPolicy(values) }),
  };
  return [edited({ name: 'status-page', label: form.label, method: 'PATCH', path: `/endpoints/${id}`, form })];
}

/** What the gateway has found when it asked as clients do. */
function probeText({ reached, stage, message }: NonNullable<Endpoint['probe']>): string {
  const words = reached ? 'reached' : (STAGES[stage ?? ''] ?? stage ?? 'not reached');
  return message === null ? words : `${words} (${message})`;
}

const STAGES: Readonly<Record<string, string>> = {
  name: 'its name leads elsewhere',
  connection: 'no connection',
  certificate: 'its certificate',
  policy: 'its policy refuses',
  session: 'its agent',
  upstream: 'its upstream',
};

/** Those of agents are changed where their policies are. */
const whoMayComeIn = ({ access = [], url, type }: Endpoint): string =>
  accessText(access, url) + (type === 'ephemeral' ? ' – its device decides' : '');

/** URLs that are online. Agents bring theirs; cloud endpoints are created here. */
export const endpointsSection = resource<Endpoint>(RESOURCES.endpoints, {
  name: 'endpoints',
  title: 'Endpoints',
  online: ['ep_'],
  nameOf: endpointUrl,
  columns: [
    {
      head: 'URL',
      sort: 'url',
      cell: (endpoint) => (
        <>
          <span class="url">{endpointUrl(endpoint)}</span>
          <UnicodeForm of={endpointUrl(endpoint)} />
          {endpoint.probe?.reached === false && <span class="below">Not reached: {probeText(endpoint.probe)}</span>}
        </>
      ),
    },
    {
      head: 'Device',
      sort: 'device',
      cell: (endpoint) => endpoint.device?.name ?? (isCloud(endpoint) ? 'Cloud' : '–'),
    },
    { head: 'Who may come in', cell: ({ access, url }) => (access ? accessText(access, url) : '–') },
    {
      head: 'Online for',
      sort: 'created_at',
      cell: (endpoint) => (
        <>
          <For moment={endpoint.created_at} />
          {isCounted(endpoint) && <LastDayLine id={endpoint.id} />}
        </>
      ),
    },
    // What clients send is on its own page: a list has room for so many columns.
    ...FIGURES.filter(({ figure }) => figure !== 'received').map(({ figure, label }) => ({
      head: label,
      cell: (endpoint: Endpoint) =>
        isCounted(endpoint) ? <TrafficFigure endpoint={endpoint.id} figure={figure} /> : '–',
    })),
  ],
  filters: [
    {
      name: 'protocol',
      label: 'Protocol',
      options: ['https', 'http', 'tls', 'tcp'].map((value) => ({ value, label: value.toUpperCase() })),
    },
    {
      name: 'type',
      label: 'Served by',
      options: [
        { value: 'ephemeral', label: 'An agent' },
        { value: 'edge', label: 'A TLS edge' },
        { value: 'cloud', label: 'The gateway itself' },
      ],
    },
    SITE_FILTER,
    LABEL_FILTER,
  ],
  empty: {
    title: 'No endpoints online',
    text: 'An endpoint comes online when an agent starts a tunnel, or as a cloud endpoint. On a device, run:',
    command: 'device-agent tunnels start 8080',
  },
  create: { label: 'Create cloud endpoint', fields: FIELDS, body: bodyOf },
  createOther: {
    'new-status-page': {
      label: 'Create status page',
      fields: [
        {
          name: 'url',
          label: 'URL of the page',
          hint: 'Such as https://status.example.com: below the domain of this gateway, or of a reserved domain.',
          kind: 'text',
          required: 'Enter a URL, such as https://status.example.com.',
        },
        ...STATUS_FIELDS,
      ],
      body: (values) => ({ url: values.url?.trim(), traffic_policy: statusPolicy(values) }),
    },
  },
  edit: {
    label: 'Edit cloud endpoint',
    fields: FIELDS,
    values: (endpoint) => ({
      url: endpointUrl(endpoint),
      traffic_policy: endpoint.traffic_policy ?? '',
      pooling_enabled: endpoint.pooling_enabled ? 'yes' : 'no',
    }),
    body: bodyOf,
  },
  facts: (endpoint) => [
    { label: 'URL', value: <AddressView url={endpointUrl(endpoint)} /> },
    ...optional('By name', endpoint.domain_url && <AddressView url={endpoint.domain_url} />),
    ...optional('Device', endpoint.device && <ItemLink id={endpoint.device.id} />),
    { label: 'Protocol', value: endpoint.proto.toUpperCase() },
    { label: 'Reach', value: reachOf(endpoint) },
    ...optional('As clients see it', endpoint.probe && probeText(endpoint.probe)),
    ...optional('Who may come in', endpoint.access && whoMayComeIn(endpoint)),
    ...optional('Which people', endpoint.people && <Admitted people={endpoint.people} />),
    ...optional('Forwards to', endpoint.upstream_url && <code>{endpoint.upstream_url}</code>),
    ...optional('Agent', endpoint.tunnel_session && <ItemLink id={endpoint.tunnel_session.id} />),
    ...optional('TLS edge', endpoint.edge && <ItemLink id={endpoint.edge.id} />),
    ...optional('Bot user', endpoint.principal && <ItemLink id={endpoint.principal.id} />),
    ...optional('Domains', endpoint.domain && <ItemLink id={endpoint.domain.id} />),
    ...optional('Traffic policy', endpoint.traffic_policy && <pre>{endpoint.traffic_policy}</pre>),
    ...optional('Name', endpoint.name),
    { label: 'Shares its address', value: endpoint.pooling_enabled ? 'Yes' : 'No' },
  ],
  historyOf: (endpoint) => (isCounted(endpoint) && endpoint.url ? linkTo('history', 'endpoints', endpoint.url) : null),
  more: (endpoint) => (isCounted(endpoint) ? <TrafficFigures endpoint={endpoint.id} /> : null),
  remove: (endpoint) => ({
    effects: [`${endpointUrl(endpoint)} goes offline at once, and what it has forwarded ends.`],
    submit: 'Delete cloud endpoint',
  }),
  // What an agent or a TLS edge has brought is changed there.
  actions: (endpoint, { edit, remove }) => [
    ...shareable(endpoint),
    ...(isCloud(endpoint)
      ? [...statusPageActions(endpoint), ...(isHttp(endpoint) ? [accessAction(endpoint)] : []), ...edit, ...remove]
      : []),
  ],
});

/** Names of people and groups in a cell, each a link to those that it finds; more are in the policy. */
const MOST_NAMES = 20;

/** Which people of the gateway an endpoint lets sign in. */
function Admitted({ people }: { people: NonNullable<Endpoint['people']> }): JSX.Element {
  const { everyone, emails, groups } = people;
  if (everyone) return <a href={linkTo('people')}>All people of this gateway</a>;
  const names = [...groups.map((name) => ({ name, kind: 'Group ' })), ...emails.map((name) => ({ name, kind: '' }))];
  const more = names.length - MOST_NAMES;
  return (
    <>
      {names.slice(0, MOST_NAMES).map(({ name, kind }) => (
        <div key={kind + name}>
          {kind}
          <a href={searchLink('people', name)}>{name}</a>
        </div>
      ))}
      {more > 0 && `and ${more} more`}
    </>
  );
}

const isHttp = ({ proto }: Endpoint): boolean => proto === 'https' || proto === 'http';

function shareable({ access = [], url }: Endpoint): Action[] {
  if (!takesLinks(access) || !url || isInternal(url)) return [];
  return [edited({ name: 'share', label: 'Share', method: 'POST', path: '/share_links', form: shareForm(url) })];
}

/** Changes who may come in to a cloud endpoint, by its policy, which one sees before it is saved. */
const accessAction = (endpoint: Endpoint): Action => ({
  name: 'access',
  label: 'Who may come in',
  dialog: (close, done) => <AccessDialog endpoint={endpoint} close={close} done={done} />,
});

function AccessDialog({
  endpoint,
  close,
  done,
}: {
  endpoint: Endpoint;
  close: () => void;
  done: () => void | Promise<void>;
}): JSX.Element {
  const text = useSignal(endpoint.traffic_policy ?? '');
  const writing = useSubmission();
  const { busy, problem, onSubmit } = useSubmission();
  const save = async () => {
    await api('PATCH', `/endpoints/${endpoint.id}`, { traffic_policy: text.value });
    await done();
  };
  return (
    <Dialog title={`Who may come in: ${endpoint.host}`} onClose={close} wide>
      <form onSubmit={onSubmit(save)} noValidate>
        {problem && <ProblemNotice title="The policy was not changed" problem={problem} />}
        <AccessForm
          present={endpoint.access ?? []}
          url={endpointUrl(endpoint)}
          people={endpoint.people ?? null}
          NamesField={KnownNames}
          choices={async () => (await api<AccessChoices>('GET', '/dashboard/access')).choices}
          admit={async (request) => {
            const body = { traffic_policy: text.value, ...request };
            const answer = await api<AccessText>('POST', '/dashboard/access', body);
            text.value = answer.traffic_policy;
            return answer.password;
          }}
          writing={writing}
        />
        <TextArea label="Traffic policy" rows={12} value={text.value} onInput={setter(text)} />
        <div class="dialog-actions">
          <Button onClick={close}>Cancel</Button>
          <Button kind="primary" type="submit" busy={busy || writing.busy}>
            Save policy
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** Names among those of the gateway's people and their groups. */
function KnownNames({ kind, ...field }: NamesFieldProps): JSX.Element {
  const load = async () => NAMES_OF[kind](await loadItems<Person>({ path: '/people', listKey: 'people' }));
  return <FormFieldInput {...field} field={{ ...field, name: kind, kind: 'some-of', load }} isFirst={false} />;
}

const NAMES_OF: Record<NamesFieldProps['kind'], (people: readonly Person[]) => Option[]> = {
  people: (people) =>
    people.map(({ email, name }) => ({ value: email, label: email, ...(name !== '' && { hint: name }) })),
  groups: (people) => {
    const sizes = new Map<string, number>();
    for (const { groups } of people) for (const name of groups) sizes.set(name, (sizes.get(name) ?? 0) + 1);
    return [...sizes].map(([name, size]) => ({
      value: name,
      label: name,
      hint: size === 1 ? '1 person' : `${size} people`,
    }));
  },
};
