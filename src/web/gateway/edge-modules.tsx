import type { ComponentChildren, JSX } from 'preact';
import type { TlsEdge, TlsEdgeModuleName } from '../../management/resources/tls-edge.ts';
import { ButtonLink } from '../ui/button.tsx';
import { Badge } from '../ui/notice.tsx';
import { linkTo } from '../ui/router.ts';
import { confirmed, edited } from './action-dialogs.tsx';
import { type FormField, type FormValues, filled, textLines } from './form.tsx';
import { ItemLink } from './item-link.tsx';
import { loadOptions } from './paged-list.ts';
import type { Action } from './section.ts';
import { responsesSection, tunnelGroupsSection } from './sections/backends-section.tsx';
import { authoritiesSection } from './sections/certificates-section.tsx';
import { ipPoliciesSection } from './sections/ip-policies-section.tsx';
import { api } from './session.ts';

const ANY_VERSION = 'Default (1.2)';

interface Module<Name extends TlsEdgeModuleName> {
  name: Name;
  /** Within a sentence. */
  title: string;
  label: string;
  /** What it does. */
  about: string;
  /** What happens when it is removed. */
  without: string;
  fields: readonly FormField[];
  values: (module: NonNullable<TlsEdge[Name]>) => FormValues;
  body: (values: FormValues) => object;
  show: (module: NonNullable<TlsEdge[Name]>) => ComponentChildren;
}

const BACKEND: Module<'backend'> = {
  name: 'backend',
  title: 'backend',
  label: 'Backend',
  about: 'Where the traffic goes.',
  without: 'Clients get no answer until there is another backend.',
  fields: [
    {
      name: 'backend_id',
      label: 'Backend',
      hint: 'A tunnel group or a fixed response.',
      required: 'Choose a backend.',
      kind: 'one-of',
      load: async () => {
        const [groups, responses] = await Promise.all([
          loadOptions(tunnelGroupsSection),
          loadOptions(responsesSection),
        ]);
        return [...groups, ...responses];
      },
    },
  ],
  values: ({ backend }) => ({ backend_id: backend.id }),
  body: ({ backend_id = '' }) => ({ backend_id }),
  show: ({ backend: { id } }) => <ItemLink id={id} />,
};

const IP_RESTRICTION: Module<'ip_restriction'> = {
  name: 'ip_restriction',
  title: 'IP restriction',
  label: 'IP restriction',
  about: 'Which client addresses may connect.',
  without: 'Clients of all addresses can connect.',
  fields: [
    {
      name: 'ids',
      member: 'ip_policy_ids',
      label: 'IP policies',
      hint: 'A client needs the permission of one of them.',
      required: 'Choose at least one IP policy.',
      kind: 'some-of',
      load: () => loadOptions(ipPoliciesSection),
    },
  ],
  values: ({ ip_policies }) => ({ ids: ip_policies.map(({ id }) => id).join('\n') }),
  body: ({ ids }) => ({ ip_policy_ids: textLines(ids) }),
  show: ({ ip_policies }) => <Links of={ip_policies} />,
};

const MUTUAL_TLS: Module<'mutual_tls'> = {
  name: 'mutual_tls',
  title: 'mutual TLS',
  label: 'Mutual TLS',
  about: 'Clients need a certificate that one of these CAs has signed.',
  without: 'Clients without a certificate can connect.',
  fields: [
    {
      name: 'ids',
      member: 'certificate_authority_ids',
      label: 'Client CAs',
      hint: '',
      required: 'Choose at least one client CA.',
      kind: 'some-of',
      load: () => loadOptions(authoritiesSection),
    },
  ],
  values: ({ certificate_authorities }) => ({ ids: certificate_authorities.map(({ id }) => id).join('\n') }),
  body: ({ ids }) => ({ certificate_authority_ids: textLines(ids) }),
  show: ({ certificate_authorities }) => <Links of={certificate_authorities} />,
};

const TLS_TERMINATION: Module<'tls_termination'> = {
  name: 'tls_termination',
  title: 'TLS termination',
  label: 'TLS termination',
  about: 'Where TLS ends. Without this module, it passes through to the agent.',
  without: 'TLS passes through to the agent, which needs a certificate of its own.',
  fields: [
    {
      name: 'terminate_at',
      label: 'Ends at',
      kind: 'choice',
      options: [
        { value: 'edge', label: 'At the edge', hint: 'The gateway has the certificate; modules see the traffic.' },
        { value: 'upstream', label: 'At the upstream', hint: 'The gateway passes TLS through.' },
      ],
    },
    {
      name: 'min_version',
      label: 'Oldest TLS version',
      kind: 'choice',
      options: [
        { value: '', label: ANY_VERSION },
        { value: '1.2', label: '1.2' },
        { value: '1.3', label: '1.3' },
      ],
    },
  ],
  values: ({ terminate_at, min_version }) => ({ terminate_at, min_version: min_version ?? '' }),
  body: ({ terminate_at = 'edge', min_version }) => ({
    terminate_at,
    ...(terminate_at === 'edge' && filled({ min_version })),
  }),
  show: ({ terminate_at, min_version }) => (
    <>
      {terminate_at === 'upstream' ? 'At the upstream' : 'At the edge'}
      {terminate_at === 'edge' && <span class="below">Oldest TLS version: {min_version ?? ANY_VERSION}</span>}
    </>
  ),
};

const TRAFFIC_POLICY: Module<'traffic_policy'> = {
  name: 'traffic_policy',
  title: 'traffic policy',
  label: 'Traffic policy',
  about: 'Rules for connections, in JSON or YAML.',
  without: 'Its rules no longer apply.',
  fields: [
    {
      name: 'value',
      label: 'Traffic policy',
      hint: 'With the phase on_tcp_connect.',
      required: 'Enter a policy.',
      kind: 'code',
    },
  ],
  values: ({ value }) => ({ value }),
  body: ({ value = '' }) => ({ value }),
  show: ({ value }) => <pre>{value}</pre>,
};

const MODULES = [BACKEND, IP_RESTRICTION, MUTUAL_TLS, TLS_TERMINATION, TRAFFIC_POLICY] as const;
/** Modules are seen one by one, whatever their type. */
type AnyModule = Module<TlsEdgeModuleName>;
type AnySettings = NonNullable<TlsEdge[TlsEdgeModuleName]>;

const ENABLED: FormField = {
  name: 'enabled',
  label: 'State',
  kind: 'choice',
  options: [
    { value: 'yes', label: 'On' },
    { value: 'no', label: 'Off' },
  ],
};

/** The names of the modules that an edge has. */
export function modulesOf(edge: TlsEdge): string[] {
  return MODULES.filter(({ name }) => edge[name] !== null).map(({ label }) => label);
}

/** The actions on the modules of an edge: each is replaced and removed on its own. */
export function moduleActions(edge: TlsEdge): Action[] {
  return (MODULES as readonly unknown[] as readonly AnyModule[]).flatMap((module) => {
    const { name, title, without, fields, values, body } = module;
    const present: AnySettings | null = edge[name];
    const path = `/edges/tls/${edge.id}/${name}`;
    const label = present ? `Change ${title}` : `Set ${title}`;
    const set = edited({
      name,
      label,
      method: 'PUT',
      path,
      form: {
        label,
        fields: [...fields, ENABLED],
        values: present ? { ...values(present as never), enabled: present.enabled ? 'yes' : 'no' } : {},
        body: ({ enabled, ...rest }) => ({ ...body(rest), enabled: enabled !== 'no' }),
      },
    });
    const drop = confirmed({
      name: `drop-${name}`,
      label: 'Remove',
      title: `Remove ${title}?`,
      effects: [without],
      submit: 'Remove module',
      isDestructive: true,
      run: () => api('DELETE', path),
    });
    return (present ? [set, drop] : [set]).map((action) => ({ ...action, isPlaced: true }));
  });
}

/** The modules of an edge, with what each does. */
export function EdgeModuleList({ edge }: { edge: TlsEdge }): JSX.Element {
  return (
    <section class="part" aria-labelledby="modules">
      <h3 id="modules">Modules</h3>
      <ul class="modules">
        {(MODULES as readonly unknown[] as readonly AnyModule[]).map((module) => (
          <li key={module.name} class="card">
            <ModuleCard edge={edge} module={module} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function ModuleCard({
  edge,
  module: { name, title, label, about, show },
}: {
  edge: TlsEdge;
  module: AnyModule;
}): JSX.Element {
  const present: AnySettings | null = edge[name];
  return (
    <>
      <div class="module-head">
        <h4>{label}</h4>
        <Badge tone={present?.enabled ? 'good' : 'neutral'}>
          {present ? (present.enabled ? 'On' : 'Off') : 'Not set'}
        </Badge>
      </div>
      {present ? <div class="module-value">{show(present as never)}</div> : <p class="hint">{about}</p>}
      <div class="module-actions">
        <ButtonLink
          kind="quiet"
          href={linkTo('edges', edge.id, name)}
          label={present ? `Change ${title}` : `Set ${title}`}
        >
          {present ? 'Change' : 'Set'}
        </ButtonLink>
        {present && (
          <ButtonLink kind="quiet" href={linkTo('edges', edge.id, `drop-${name}`)} label={`Remove ${title}`}>
            Remove
          </ButtonLink>
        )}
      </div>
    </>
  );
}

function Links({ of }: { of: readonly { id: string }[] }): JSX.Element {
  return (
    <>
      {of.map(({ id }) => (
        <div key={id}>
          <ItemLink id={id} />
        </div>
      ))}
    </>
  );
}
