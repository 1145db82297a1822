import { useComputed } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { shared } from '../strings.ts';
import { AccountMenu } from '../ui/account-menu.tsx';
import { LiveBadge, StaleNotice } from '../ui/live-badge.tsx';
import { linkTo, route } from '../ui/router.ts';
import { Gate, SignInForm } from '../ui/sign-in-form.tsx';
import { type LiveFigures, openFigures } from './live-figures.ts';
import { Overview } from './overview.tsx';
import type { SectionName } from './section.ts';
import { SectionView } from './section-view.tsx';
import { botUsersSection } from './sections/bot-users.tsx';
import { devicesSection } from './sections/devices.tsx';
import { domainsSection } from './sections/domains.tsx';
import { agentsSection, endpointsSection } from './sections/online.tsx';
import { apiKeysSection, authtokensSection } from './sections/tokens.tsx';
import { session } from './session.ts';
import { gateway } from './strings.ts';

type ViewName = keyof typeof gateway.sections;
type Stamp = { stamp: ReturnType<typeof useComputed<string>> };

const VIEWS: Record<SectionName, (props: Stamp) => JSX.Element> = {
  devices: (props) => <SectionView key="devices" section={devicesSection} {...props} />,
  agents: (props) => <SectionView key="agents" section={agentsSection} {...props} />,
  endpoints: (props) => <SectionView key="endpoints" section={endpointsSection} {...props} />,
  domains: (props) => <SectionView key="domains" section={domainsSection} {...props} />,
  'bot-users': (props) => <SectionView key="bot-users" section={botUsersSection} {...props} />,
  authtokens: (props) => <SectionView key="authtokens" section={authtokensSection} {...props} />,
  'api-keys': (props) => <SectionView key="api-keys" section={apiKeysSection} {...props} />,
};

export function App(): JSX.Element {
  const access = session.access.value;
  if (access === null) return <p class="loading">{shared.loading}</p>;
  return access.holder === null ? <SignIn /> : <Dashboard holder={access.holder} />;
}

function SignIn(): JSX.Element {
  return (
    <Gate title={gateway.title}>
      <SignInForm
        text={gateway.signIn}
        problem={session.problem.value}
        signIn={(api_key) => session.signIn({ api_key })}
      />
    </Gate>
  );
}

function Dashboard({ holder }: { holder: string }): JSX.Element {
  const [live] = useState(openFigures);
  useEffect(() => () => live.connection.close(), [live]);
  return (
    <>
      <button type="button" class="button skip" onClick={() => document.getElementById('content')?.focus()}>
        {shared.skipToContent}
      </button>
      <header class="top">
        <h1>{gateway.title}</h1>
        <LiveBadge connection={live.connection} />
        <AccountMenu session={session}>
          <p class="hint">{gateway.menu.signedInAs(holder)}</p>
        </AccountMenu>
      </header>
      <Navigation />
      <StaleNotice connection={live.connection} />
      <main id="content" tabindex={-1}>
        <View live={live} />
        <footer class="foot">{live.figures.value && gateway.version(live.figures.value.version)}</footer>
      </main>
    </>
  );
}

function currentView(): ViewName {
  const [name = ''] = route.value;
  return name in VIEWS ? (name as SectionName) : 'overview';
}

function View({ live: { figures } }: { live: LiveFigures }): JSX.Element {
  const stamp = useComputed(() => figures.value?.stamp ?? '');
  const view = currentView();
  return view === 'overview' ? <Overview figures={figures} stamp={stamp} /> : VIEWS[view]({ stamp });
}

function Navigation(): JSX.Element {
  const view = currentView();
  const nav = useRef<HTMLElement>(null);
  // On narrow screens, the current view can be beyond the edge.
  useEffect(() => {
    const current = nav.current?.querySelector<HTMLElement>('[aria-current]');
    if (current) nav.current?.scrollTo({ left: current.offsetLeft - 100 });
  }, [view]);
  return (
    <nav ref={nav} class="sections" aria-label={gateway.menu.label}>
      {(Object.keys(gateway.sections) as ViewName[]).map((name) => (
        <a
          key={name}
          href={name === 'overview' ? '#/' : linkTo(name)}
          aria-current={name === view ? 'page' : undefined}
        >
          {gateway.sections[name]}
        </a>
      ))}
    </nav>
  );
}
