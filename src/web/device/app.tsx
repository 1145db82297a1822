import { type JSX, render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { FeedTunnel } from '../../agent/api/page/page-routes.ts';
import { ButtonLink } from '../ui/button.tsx';
import { AccountMenu, EndedGate, Gate, PageHead, SignInForm, StaleNotice } from '../ui/frame.tsx';
import { PulseIcon } from '../ui/icons.tsx';
import { lazy } from '../ui/lazy.tsx';
import { goHome, linkTo, route, useTitle } from '../ui/router.ts';
import { Doctor } from './doctor-view.tsx';
import type { InspectorProps } from './inspector/inspector-view.tsx';
import { LogSection } from './log-section.tsx';
import { type DeviceModel, openModel, session } from './model.ts';
import { StartTunnel } from './start-tunnel.tsx';
import { StateCard } from './state-card.tsx';
import { TunnelCards } from './tunnel-cards.tsx';
import { TunnelDialogs } from './tunnel-dialogs.tsx';
import '../ui/theme.css';
import '../ui/components.css';
import '../ui/frame.css';
import './device.css';

const SIGN_IN = {
  title: 'Sign in',
  intro:
    'Enter the API token of this device. Browsers that are signed in stay so until 30 days after their last visit.',
  credential: 'API token',
  where: 'On the device, it is in the file api-token in the data folder.',
  whereLink: 'To sign in without typing, run this on the device and open the link or scan the QR code:',
  command: 'device-agent page',
  submit: 'Sign in',
  ended:
    'You are signed out: the session expired, somebody signed out everywhere, or the API token was replaced. Sign in to go on where you were.',
} as const;

function App(): JSX.Element {
  const isEnded = session.isEnded.value;
  switch (session.access.value?.access) {
    case undefined:
      return <p class="loading">Loading…</p>;
    case 'sign-in':
      if (isEnded) break;
      return (
        <Gate title="Device agent">
          <SignIn isEnded={false} />
        </Gate>
      );
    case 'insecure':
      return (
        <Gate title="Device agent">
          <div class="card">
            <h2>No secure connection</h2>
            <p>
              This address has no TLS, so the page could not keep your session secret. Open the page at the domain of
              the agent (AGENT_DOMAIN), or on the device itself.
            </p>
          </div>
        </Gate>
      );
  }
  return (
    <>
      <Device />
      {isEnded && (
        <EndedGate title="Device agent">
          <SignIn isEnded />
        </EndedGate>
      )}
    </>
  );
}

function SignIn({ isEnded }: { isEnded: boolean }): JSX.Element {
  return (
    <SignInForm
      text={SIGN_IN}
      isEnded={isEnded}
      problem={session.problem.value}
      signIn={(token) => session.signIn({ token })}
    />
  );
}

function Device(): JSX.Element {
  const [model] = useState(openModel);
  useEffect(() => () => model.connection.close(), [model]);
  const status = model.status.value;
  const inspected = inspectedTunnel(model);
  const name = model.name.value;
  useTitle(name === null ? 'Device agent' : `${name} – Device agent`);
  return (
    <>
      <PageHead title={name ?? 'Device agent'} connection={model.connection}>
        <nav aria-label="Device">
          <ButtonLink kind="quiet" href={linkTo('doctor')}>
            <PulseIcon />
            Diagnose
          </ButtonLink>
          {session.access.value?.access === 'signed-in' && <AccountMenu session={session} />}
        </nav>
      </PageHead>
      <StaleNotice connection={model.connection} />
      <main id="content" tabindex={-1}>
        {status === null ? (
          <p class="loading" role="status">
            Connecting…
          </p>
        ) : inspected ? (
          <LazyInspector
            ca={status?.addresses.gateway_ca ?? null}
            key={inspected.id}
            tunnel={inspected}
            requestId={route.value[3]}
            isEditing={route.value[4] === 'edit'}
          />
        ) : (
          <>
            <StateCard model={model} status={status} />
            <TunnelCards tunnels={model.tunnels.value} />
            <LogSection lines={model.log.value} />
            <footer class="foot">version {status.version}</footer>
          </>
        )}
      </main>
      <Dialogs model={model} />
    </>
  );
}

/** The tunnel whose traffic is shown, if any: `#/tunnels/<id>/traffic`. */
function inspectedTunnel(model: DeviceModel): FeedTunnel | undefined {
  const [view, id, action] = route.value;
  if (view !== 'tunnels' || action !== 'traffic') return undefined;
  return model.tunnels.value.find((each) => each.id === id);
}

function Dialogs({ model }: { model: DeviceModel }): JSX.Element | null {
  const [view, id = '', action = ''] = route.value;
  if (view === 'start') return <StartTunnel onClose={goHome} />;
  if (view === 'doctor') return <Doctor onClose={goHome} />;
  const tunnel = view === 'tunnels' ? model.tunnels.value.find((each) => each.id === id) : undefined;
  return tunnel ? <TunnelDialogs key={id} tunnel={tunnel} action={action} forget={() => model.forget(id)} /> : null;
}

const LazyInspector = lazy<InspectorProps>(
  'The inspector',
  async () => (await import('./inspector/inspector-view.tsx')).InspectorView,
);

const root = document.getElementById('page');
if (root) {
  render(<App />, root);
  void session.open();
}
