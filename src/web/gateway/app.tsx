import { type ReadonlySignal, useSignal } from '@preact/signals';
import { type JSX, render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Button } from '../ui/button.tsx';
import { AccountMenu, EndedGate, Gate, PageHead, SignInForm, StaleNotice } from '../ui/frame.tsx';
import { lazy } from '../ui/lazy.tsx';
import { ProblemNotice } from '../ui/notice.tsx';
import { linkTo, route, useTitle } from '../ui/router.ts';
import { useSubmission } from '../ui/submission.ts';
import { AddSite } from './add-site.tsx';
import { Sections } from './item-link.tsx';
import { Overview } from './overview-view.tsx';
import { pageTitle, type Section } from './section.ts';
import { SectionView } from './section-view.tsx';
import { agentsSection } from './sections/agents-section.tsx';
import { auditLogSection } from './sections/audit-log-section.tsx';
import { responsesSection, tunnelGroupsSection } from './sections/backends-section.tsx';
import { bulkActionsSection } from './sections/bulk-actions-section.tsx';
import { authoritiesSection, certificatesSection } from './sections/certificates-section.tsx';
import { apiKeysSection, authtokensSection, botUsersSection } from './sections/credentials-section.tsx';
import { devicesSection, invitesSection } from './sections/devices-section.tsx';
import { domainsSection } from './sections/domains-section.tsx';
import { endpointsSection } from './sections/endpoints-section.tsx';
import { eventDestinationsSection, eventSubscriptionsSection } from './sections/events-section.tsx';
import { ipPoliciesSection, ipRestrictionsSection } from './sections/ip-policies-section.tsx';
import { conditionHistorySection, messageRulesSection } from './sections/messages-section.tsx';
import { peopleSection, signInsSection } from './sections/people-section.tsx';
import { shareLinksSection } from './sections/share-links-section.tsx';
import { tcpAddressesSection } from './sections/tcp-addresses-section.tsx';
import { edgesSection } from './sections/tls-edges-section.tsx';
import { vaultsSection } from './sections/vaults-section.tsx';
import { type LiveFigures, leaveToSignIn, type News, openFigures, session, type Watched } from './session.ts';
import '../ui/theme.css';
import '../ui/components.css';
import '../ui/frame.css';
import './gateway.css';
import './item.css';
import './table.css';

const SIGN_IN = {
  title: 'Sign in',
  intro: 'Browsers that are signed in stay so for 30 days after their last visit, or until the gateway restarts.',
  credential: 'API key',
  where: 'It was shown once, when it was created.',
  whereLink: 'To sign in without a key, run this on the gateway’s machine and open the link:',
  command: 'device-agent gateway dashboard',
  submit: 'Sign in',
  ended:
    'You are signed out: the session expired or was ended, its API key was revoked, its person may no longer use the dashboard, or the gateway restarted. Sign in to go on where you were.',
} as const;

/** A view's part of the address, and its title. */
type View = Pick<Section, 'name' | 'title'>;

const OVERVIEW: View = { name: 'overview', title: 'Overview' };
const HISTORY: View = { name: 'history', title: 'History' };
const ADD_SITE: View = { name: 'add-site', title: 'Add a site' };

const LazyHistory = lazy<{ news: ReadonlySignal<News> }>(
  'The history',
  async () => (await import('./history/history-view.tsx')).HistoryView,
);

/** The sections, as the navigation has them. */
const GROUPS = [
  {
    name: 'fleet',
    title: 'Fleet',
    sections: [devicesSection, agentsSection, endpointsSection, invitesSection, bulkActionsSection],
  },
  { name: 'names', title: 'Names', sections: [domainsSection, certificatesSection, tcpAddressesSection] },
  {
    name: 'traffic',
    title: 'Traffic',
    sections: [
      ...[edgesSection, tunnelGroupsSection, responsesSection, ipPoliciesSection, ipRestrictionsSection],
      ...[authoritiesSection, vaultsSection],
    ],
  },
  {
    name: 'access',
    title: 'Access',
    sections: [peopleSection, signInsSection, botUsersSection, authtokensSection, apiKeysSection, shareLinksSection],
  },
  {
    name: 'events',
    title: 'Events',
    sections: [
      ...[conditionHistorySection, messageRulesSection, auditLogSection],
      ...[eventDestinationsSection, eventSubscriptionsSection],
    ],
  },
];

/** Each section knows its own items; here they are all alike. */
const SECTIONS = GROUPS.flatMap<View>(({ sections }) => sections) as readonly View[] as readonly Section[];

function App(): JSX.Element {
  const access = session.access.value;
  const isEnded = session.isEnded.value;
  const last = useRef('');
  const name = useRef('');
  if (access === null) return <p class="loading">Loading…</p>;
  if (access.holder === null && !isEnded) {
    return (
      <Gate title="Gateway">
        <SignIn isEnded={false} />
      </Gate>
    );
  }
  last.current = access.holder ?? last.current;
  if (access.holder !== null) name.current = access.name ?? access.holder;
  return (
    <>
      {/* Nobody goes on with what another one has begun. */}
      <Dashboard key={last.current} holder={name.current} />
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
    >
      {session.access.value?.hasPeople ? <AccountSignIn /> : undefined}
    </SignInForm>
  );
}

/** For people of the gateway. */
function AccountSignIn(): JSX.Element {
  const { busy, problem, run } = useSubmission();
  return (
    <>
      {problem && <ProblemNotice title="Signing in could not begin" problem={problem} />}
      <Button kind="primary" busy={busy} onClick={() => void run(leaveToSignIn)}>
        Sign in with your account
      </Button>
      <hr />
    </>
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
        <StaleNotice connection={live.connection} staleSeconds={live.figures.value?.staleSeconds ?? null} />
        <Sections.Provider value={SECTIONS}>
          <ViewOf key={view.name} view={view} live={live} />
        </Sections.Provider>
        <footer class="foot">{live.figures.value && `version ${live.figures.value.version}`}</footer>
      </main>
    </div>
  );
}

function currentView(): View {
  const [name] = route.value;
  return [HISTORY, ADD_SITE, ...SECTIONS].find((view) => view.name === name) ?? OVERVIEW;
}

/** Give it the view's name as `key`. */
function ViewOf({ view, live: { figures, newsOf } }: { view: View; live: LiveFigures }): JSX.Element {
  const [news] = useState(() => newsOf(watchedBy(view)));
  if (view === OVERVIEW) return <Overview figures={figures} news={news} />;
  if (view === HISTORY) return <LazyHistory key={route.value.join('/')} news={news} />;
  if (view === ADD_SITE) return <AddSite news={news} />;
  return <SectionView section={view as Section} news={news} />;
}

function watchedBy(view: View): Watched {
  if (view === OVERVIEW) return { online: [''], tables: SECTIONS.flatMap(({ tables }) => tables) };
  // Its events; the figures change all the time.
  if (view === HISTORY) return { tables: ['audit_log'] };
  return view === ADD_SITE ? domainsSection : (view as Section);
}

const NAVIGATION: readonly { name: string | null; title?: string; views: readonly View[] }[] = [
  { name: null, views: [OVERVIEW, HISTORY, ADD_SITE] },
  ...GROUPS.map(({ sections, ...group }) => ({ ...group, views: sections })),
];

/** All views: beside the content, or on narrow screens behind a button that names the present one. */
function Navigation({ view }: { view: View }): JSX.Element {
  const isOpen = useSignal(false);
  return (
    <nav class="views" aria-label="Dashboard">
      <button
        type="button"
        class="button views-toggle"
        aria-expanded={isOpen.value}
        aria-controls="views"
        aria-label={`Menu: ${view.title}`}
        onClick={() => {
          isOpen.value = !isOpen.value;
        }}
      >
        {view.title}
      </button>
      <div id="views" class={isOpen.value ? 'groups open' : 'groups'}>
        {NAVIGATION.map(({ name, title, views }) => (
          <div key={name} class="group">
            {name !== null && <h2 id={`group-${name}`}>{title}</h2>}
            <ul aria-labelledby={name === null ? undefined : `group-${name}`}>
              {views.map((each) => (
                <li key={each.name}>
                  <a
                    href={each === OVERVIEW ? '#/' : linkTo(each.name)}
                    aria-current={each === view ? 'page' : undefined}
                    onClick={() => {
                      isOpen.value = false;
                    }}
                  >
                    {each.title}
                  </a>
                </li>
              ))}
            </ul>
          </div>
        ))}
      </div>
    </nav>
  );
}

const root = document.getElementById('page');
if (root) {
  render(<App />, root);
  void session.open();
}
