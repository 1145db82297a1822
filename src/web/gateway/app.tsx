import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { AccountMenu, EndedGate, Gate, SignInForm } from '../ui/account.tsx';
import { PageHead, StaleNotice } from '../ui/page-head.tsx';
import { route, useTitle } from '../ui/router.ts';
import { AddSite } from './add-site.tsx';
import { Sections } from './item-link.tsx';
import { Navigation, type ViewName } from './navigation.tsx';
import { Overview } from './overview.tsx';
import { pageTitle, type Section, type SectionName } from './section.ts';
import { SectionView } from './section-view.tsx';
import { agentsSection } from './sections/agents.tsx';
import { auditLogSection } from './sections/audit-log.tsx';
import { botUsersSection } from './sections/bot-users.tsx';
import { authoritiesSection } from './sections/certificate-authorities.tsx';
import { devicesSection } from './sections/devices.tsx';
import { domainsSection } from './sections/domains.tsx';
import { endpointsSection } from './sections/endpoints.tsx';
import { invitesSection } from './sections/enrolment-keys.tsx';
import { eventDestinationsSection } from './sections/event-destinations.tsx';
import { eventSubscriptionsSection } from './sections/event-subscriptions.tsx';
import { responsesSection } from './sections/http-responses.tsx';
import { ipPoliciesSection } from './sections/ip-policies.tsx';
import { ipRestrictionsSection } from './sections/ip-restrictions.tsx';
import { peopleSection } from './sections/people.tsx';
import { shareLinksSection } from './sections/share-links.tsx';
import { signInsSection } from './sections/sign-ins.tsx';
import { tcpAddressesSection } from './sections/tcp-addresses.tsx';
import { certificatesSection } from './sections/tls-certificates.tsx';
import { edgesSection } from './sections/tls-edges.tsx';
import { apiKeysSection, authtokensSection } from './sections/tokens.tsx';
import { tunnelGroupsSection } from './sections/tunnel-groups.tsx';
import { vaultsSection } from './sections/vaults.tsx';
import { type LiveFigures, openFigures, session, type Watched } from './session.ts';

const SIGN_IN = {
  title: 'Sign in',
  intro:
    'Enter an API key. Browsers that are signed in stay so for 30 days after their last visit, or until the gateway restarts.',
  credential: 'API key',
  where: 'It was shown once, when it was created.',
  whereLink: 'To sign in without a key, run this on the gateway’s machine and open the link:',
  command: 'device-agent gateway dashboard',
  submit: 'Sign in',
  ended:
    'You are signed out: the session expired, its API key was revoked, somebody signed out everywhere, or the gateway restarted. Sign in to go on where you were.',
} as const;

/** Each section knows its own items; here they are all alike. */
const SECTIONS = Object.fromEntries(
  [
    devicesSection,
    invitesSection,
    agentsSection,
    endpointsSection,
    domainsSection,
    certificatesSection,
    edgesSection,
    tunnelGroupsSection,
    responsesSection,
    ipPoliciesSection,
    ipRestrictionsSection,
    tcpAddressesSection,
    vaultsSection,
    authoritiesSection,
    peopleSection,
    signInsSection,
    botUsersSection,
    authtokensSection,
    apiKeysSection,
    auditLogSection,
    eventDestinationsSection,
    eventSubscriptionsSection,
    shareLinksSection,
  ].map((section) => [section.name, section as unknown as Section]),
) as Record<SectionName, Section>;

export function App(): JSX.Element {
  const access = session.access.value;
  const isEnded = session.isEnded.value;
  const last = useRef('');
  if (access === null) return <p class="loading">Loading…</p>;
  if (access.holder === null && !isEnded) {
    return (
      <Gate title="Gateway">
        <SignIn isEnded={false} />
      </Gate>
    );
  }
  last.current = access.holder ?? last.current;
  return (
    <>
      {/* Nobody goes on with what another one has begun. */}
      <Dashboard key={last.current} holder={last.current} />
      {isEnded && (
        <EndedGate title="Gateway">
          <SignIn isEnded />
        </EndedGate>
      )}
    </>
  );
}

function SignIn({ isEnded }: { isEnded: boolean }): JSX.Element {
  useTitle(isEnded ? null : pageTitle(SIGN_IN.title));
  return (
    <SignInForm
      text={SIGN_IN}
      isEnded={isEnded}
      problem={session.problem.value}
      signIn={(api_key) => session.signIn({ api_key })}
    />
  );
}

function Dashboard({ holder }: { holder: string }): JSX.Element {
  const [live] = useState(openFigures);
  useEffect(() => () => live.connection.close(), [live]);
  const view = currentView();
  return (
    <div class="frame">
      <PageHead title="Gateway" connection={live.connection}>
        <AccountMenu session={session}>
          <p class="hint">{holder === 'gateway' ? 'Signed in by link' : `Signed in as ${holder}`}</p>
        </AccountMenu>
      </PageHead>
      <Navigation view={view} />
      <main id="content" tabindex={-1}>
        <StaleNotice connection={live.connection} />
        <Sections.Provider value={SECTIONS}>
          <View key={view} view={view} live={live} />
        </Sections.Provider>
        <footer class="foot">{live.figures.value && `version ${live.figures.value.version}`}</footer>
      </main>
    </div>
  );
}

function currentView(): ViewName {
  const [name = ''] = route.value;
  return name in SECTIONS || name === 'add-site' ? (name as ViewName) : 'overview';
}

/** Give it the view's name as `key`. */
function View({ view, live: { figures, newsOf } }: { view: ViewName; live: LiveFigures }): JSX.Element {
  const [news] = useState(() => newsOf(watchedBy(view)));
  if (view === 'overview') return <Overview figures={figures} news={news} />;
  if (view === 'add-site') return <AddSite news={news} />;
  return <SectionView section={SECTIONS[view]} news={news} />;
}

function watchedBy(view: ViewName): Watched {
  if (view === 'overview') return { online: [''], tables: Object.values(SECTIONS).flatMap(({ tables }) => tables) };
  return view === 'add-site' ? domainsSection : SECTIONS[view];
}
