import type { ComponentChildren, JSX } from 'preact';
import type { TlsEdge, TlsEdgeModuleName } from '../../management/resources/tls-edge.ts';
import { ButtonLink } from '../ui/button.tsx';
import { Badge } from '../ui/notice.tsx';
import { linkTo } from '../ui/router.ts';
import { confirmed } from './confirm-dialog.tsx';
import { type FormField, type FormValues, filled, linesOf } from './form.ts';
import { edited } from './form-dialog.tsx';
import { ItemLink } from './item-link.tsx';
import { loadOptions } from './options.ts';
import type { Action, SectionName } from './section.ts';
import { authoritiesSection } from './sections/certificate-authorities.tsx';
import { responsesSection } from './sections/http-responses.tsx';
import { ipPoliciesSection } from './sections/ip-policies.tsx';
import { tunnelGroupsSection } from './sections/tunnel-groups.tsx';
import { api } from './session.ts';
import { traffic } from './traffic-strings.ts';

const text = traffic.edges;

interface Module<Name extends TlsEdgeModuleName> {
  name: Name;
  fields: readonly FormField[];
  values: (module: NonNullable<TlsEdge[Name]>) => FormValues;
  body: (values: FormValues) => object;
  show: (module: NonNullable<TlsEdge[Name]>) => ComponentChildren;
}

type TlsVersion = keyof typeof text.minVersions;

const BACKEND: Module<'backend'> = {
  name: 'backend',
  fields: [
    {
      name: 'backend_id',
      label: text.module.backend.field,
      hint: text.module.backend.hint,
      required: text.module.backend.required,
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
  show: ({ backend: { id } }) => <ItemLink section={id.startsWith('bkdtg_') ? 'tunnel-groups' : 'responses'} id={id} />,
};

const IP_RESTRICTION: Module<'ip_restriction'> = {
  name: 'ip_restriction',
  fields: [
    {
      name: 'ids',
      member: 'ip_policy_ids',
      label: text.module.ip_restriction.field,
      hint: text.module.ip_restriction.hint,
      required: text.module.ip_restriction.required,
      kind: 'some-of',
      load: () => loadOptions(ipPoliciesSection),
    },
  ],
  values: ({ ip_policies }) => ({ ids: ip_policies.map(({ id }) => id).join('\n') }),
  body: ({ ids }) => ({ ip_policy_ids: linesOf(ids) }),
  show: ({ ip_policies }) => <Links section="ip-policies" of={ip_policies} />,
};

const MUTUAL_TLS: Module<'mutual_tls'> = {
  name: 'mutual_tls',
  fields: [
    {
      name: 'ids',
      member: 'certificate_authority_ids',
      label: text.module.mutual_tls.field,
      hint: text.module.mutual_tls.hint,
      required: text.module.mutual_tls.required,
      kind: 'some-of',
      load: () => loadOptions(authoritiesSection),
    },
  ],
  values: ({ certificate_authorities }) => ({ ids: certificate_authorities.map(({ id }) => id).join('\n') }),
  body: ({ ids }) => ({ certificate_authority_ids: linesOf(ids) }),
  show: ({ certificate_authorities }) => <Links section="authorities" of={certificate_authorities} />,
};

const TLS_TERMINATION: Module<'tls_termination'> = {
  name: 'tls_termination',
  fields: [
    {
      name: 'terminate_at',
      label: text.module.tls_termination.field,
      kind: 'choice',
      options: (['edge', 'upstream'] as const).map((value) => ({
        value,
        label: text.terminateAt[value],
        hint: text.terminateHints[value],
      })),
    },
    {
      name: 'min_version',
      label: text.minVersion,
      kind: 'choice',
      options: (Object.keys(text.minVersions) as TlsVersion[])
        .sort()
        .map((value) => ({ value, label: text.minVersions[value] })),
    },
  ],
  values: ({ terminate_at, min_version }) => ({ terminate_at, min_version: min_version ?? '' }),
  body: ({ terminate_at = 'edge', min_version }) => ({
    terminate_at,
    ...(terminate_at === 'edge' && filled({ min_version })),
  }),
  show: ({ terminate_at, min_version }) => (
    <>
      {terminate_at === 'upstream' ? text.terminateAt.upstream : text.terminateAt.edge}
      {terminate_at === 'edge' && (
        <span class="below">
          {text.minVersion}: {min_version ?? text.minVersions['']}
        </span>
      )}
    </>
  ),
};

const TRAFFIC_POLICY: Module<'traffic_policy'> = {
  name: 'traffic_policy',
  fields: [
    {
      name: 'value',
      label: text.module.traffic_policy.field,
      hint: text.module.traffic_policy.hint,
      required: text.module.traffic_policy.required,
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
  label: text.enabled,
  kind: 'choice',
  options: (['yes', 'no'] as const).map((value) => ({ value, label: text.enabledOptions[value] })),
};

/** The names of the modules that an edge has. */
export function modulesOf(edge: TlsEdge): string[] {
  return MODULES.filter(({ name }) => edge[name] !== null).map(({ name }) => text.module[name].label);
}

/** The actions on the modules of an edge: each is replaced and removed on its own. */
export function moduleActions(edge: TlsEdge): Action[] {
  return (MODULES as readonly unknown[] as readonly AnyModule[]).flatMap((module) => {
    const { name, fields, values, body } = module;
    const present: AnySettings | null = edge[name];
    const path = `/edges/tls/${edge.id}/${name}`;
    const { title, without } = text.module[name];
    const label = present ? text.change(title) : text.set(title);
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
      label: text.drop,
      title: text.dropTitle(title),
      effects: [without],
      submit: text.dropSubmit,
      isDestructive: true,
      run: () => api('DELETE', path),
    });
    return (present ? [set, drop] : [set]).map((action) => ({ ...action, isPlaced: true }));
  });
}

/** The modules of an edge, with what each does. */
export function EdgeModules({ edge }: { edge: TlsEdge }): JSX.Element {
  return (
    <section class="part" aria-labelledby="modules">
      <h3 id="modules">{text.modules}</h3>
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

function ModuleCard({ edge, module: { name, show } }: { edge: TlsEdge; module: AnyModule }): JSX.Element {
  const present: AnySettings | null = edge[name];
  const { label, about, title } = text.module[name];
  return (
    <>
      <div class="module-head">
        <h4>{label}</h4>
        <Badge tone={present?.enabled ? 'good' : 'neutral'}>
          {present ? (present.enabled ? text.on : text.off) : text.notSet}
        </Badge>
      </div>
      {present ? <div class="module-value">{show(present as never)}</div> : <p class="hint">{about}</p>}
      <div class="module-actions">
        <ButtonLink
          kind="quiet"
          href={linkTo('edges', edge.id, name)}
          label={present ? text.change(title) : text.set(title)}
        >
          {present ? text.changeShort : text.setShort}
        </ButtonLink>
        {present && (
          <ButtonLink kind="quiet" href={linkTo('edges', edge.id, `drop-${name}`)} label={`${text.drop} ${title}`}>
            {text.drop}
          </ButtonLink>
        )}
      </div>
    </>
  );
}

function Links({ section, of }: { section: SectionName; of: readonly { id: string }[] }): JSX.Element {
  return (
    <>
      {of.map(({ id }) => (
        <div key={id}>
          <ItemLink section={section} id={id} />
        </div>
      ))}
    </>
  );
}
