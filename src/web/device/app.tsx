import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { device, shared } from '../strings.ts';
import { ButtonLink } from '../ui/button.tsx';
import { PulseIcon } from '../ui/icons.tsx';
import { LiveBadge, StaleNotice } from '../ui/live-badge.tsx';
import { goHome, linkTo, route } from '../ui/router.ts';
import { AccountMenu } from './account-menu.tsx';
import { Doctor } from './doctor.tsx';
import { LogSection } from './log-section.tsx';
import { type DeviceModel, openModel } from './model.ts';
import { currentAccess } from './session.ts';
import { Insecure, SignIn } from './sign-in.tsx';
import { StartTunnel } from './start-tunnel.tsx';
import { StateCard } from './state-card.tsx';
import { TunnelDialogs } from './tunnel-dialogs.tsx';
import { TunnelList } from './tunnel-list.tsx';

export function App(): JSX.Element {
  switch (currentAccess.value) {
    case 'unknown':
      return <p class="loading">{device.loading}</p>;
    case 'sign-in':
      return <SignIn />;
    case 'insecure':
      return <Insecure />;
    default:
      return <Device />;
  }
}

function Device(): JSX.Element {
  const [model] = useState(openModel);
  useEffect(() => () => model.connection.close(), [model]);
  const status = model.status.value;
  return (
    <>
      <button type="button" class="button skip" onClick={() => document.getElementById('content')?.focus()}>
        {device.skipToContent}
      </button>
      <header class="top">
        <h1>{device.title}</h1>
        <LiveBadge connection={model.connection} />
        <nav aria-label={device.menu.label}>
          <ButtonLink kind="quiet" href={linkTo('doctor')}>
            <PulseIcon />
            {device.menu.doctor}
          </ButtonLink>
          {currentAccess.value === 'signed-in' && <AccountMenu />}
        </nav>
      </header>
      <StaleNotice connection={model.connection} />
      <main id="content" tabindex={-1}>
        {status === null ? (
          <p class="loading" role="status">
            {shared.connecting}
          </p>
        ) : (
          <>
            <StateCard model={model} status={status} />
            <TunnelList tunnels={model.tunnels.value} />
            <LogSection lines={model.log.value} />
            <footer class="foot">{device.version(status.version)}</footer>
          </>
        )}
      </main>
      <Dialogs model={model} />
    </>
  );
}

function Dialogs({ model }: { model: DeviceModel }): JSX.Element | null {
  const [view, id = '', action = ''] = route.value;
  if (view === 'start') return <StartTunnel onClose={goHome} />;
  if (view === 'doctor') return <Doctor onClose={goHome} />;
  const tunnel = view === 'tunnels' ? model.tunnels.value.find((each) => each.id === id) : undefined;
  return tunnel ? <TunnelDialogs key={id} tunnel={tunnel} action={action} /> : null;
}
