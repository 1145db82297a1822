import { type ReadonlySignal, useSignal, useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import type { ReservedDomain } from '../../management/resources/reserved-domain.ts';
import { ApiProblem } from '../ui/api.ts';
import { Button, ButtonLink } from '../ui/button.tsx';
import { Notice, ProblemNotice } from '../ui/notice.tsx';
import { linkTo, route } from '../ui/router.ts';
import { useSubmission } from '../ui/submission.ts';
import { useTitle } from '../ui/title.ts';
import { DnsRecords } from './dns-records.tsx';
import { type FormField, placedIn } from './form.ts';
import { FormFieldInput } from './form-field-input.tsx';
import { PagedList } from './paged-list.ts';
import { pageTitle } from './section.ts';
import { CERTIFICATE_POLICY, domainsSection } from './sections/domains.tsx';
import { api } from './session.ts';
import { SiteDevices } from './site-devices.tsx';
import { Step } from './site-step.tsx';

const VIEW = 'add-site';
/** The gateway's own certificate covers the name, or reserved already. */
const NO_POLICY_NEEDED = ['ERR_NGROK_439', 'ERR_NGROK_447'];
const RESERVED = 'ERR_NGROK_413';
const MOST = 20_000;
/** Reserved domains that are offered. */
const OFFERED = 5;

/** Leads from a domain to devices. The domain is in the address, so that one can come back when DNS is ready. */
export function AddSite({ stamp }: { stamp: ReadonlySignal<string> }): JSX.Element {
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
      {id === undefined ? <ChooseDomain stamp={stamp} /> : <Site key={id} id={id} stamp={stamp} />}
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

function ChooseDomain({ stamp }: { stamp: ReadonlySignal<string> }): JSX.Element {
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
          onInput={(value) => {
            name.value = value;
          }}
          problem={problem?.details[DOMAIN.name]}
        />
        <Button kind="primary" type="submit" busy={busy}>
          Reserve domain
        </Button>
      </form>
      <Existing stamp={stamp} />
    </Step>
  );
}

/** The newest wildcard domains. */
function Existing({ stamp }: { stamp: ReadonlySignal<string> }): JSX.Element | null {
  const found = useSignal<readonly ReservedDomain[]>([]);
  useSignalEffect(() => {
    stamp.value;
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

function Site({ id, stamp }: { id: string; stamp: ReadonlySignal<string> }): JSX.Element {
  const domain = useSignal<ReservedDomain | null>(null);
  const problem = useSignal<ApiProblem | null>(null);
  const load = async () => {
    try {
      domain.value = await api<ReservedDomain>('GET', `${domainsSection.path}/${encodeURIComponent(id)}`);
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      problem.value = error;
    }
  };
  useSignalEffect(() => {
    stamp.value;
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
  return new PagedList<ReservedDomain>(domainsSection.path, domainsSection.listKey);
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
