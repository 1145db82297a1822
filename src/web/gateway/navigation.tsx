import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { linkTo } from '../ui/router.ts';
import { SECTION_TITLES } from './section.ts';

export type ViewName = keyof typeof SECTION_TITLES;

const GROUPS: readonly { name: string | null; title?: string; views: readonly ViewName[] }[] = [
  { name: null, views: ['overview', 'add-site'] },
  { name: 'fleet', title: 'Fleet', views: ['devices', 'agents', 'endpoints', 'invites'] },
  { name: 'names', title: 'Names', views: ['domains', 'certificates', 'tcp-addresses'] },
  {
    name: 'traffic',
    title: 'Traffic',
    views: ['edges', 'tunnel-groups', 'responses', 'ip-policies', 'ip-restrictions', 'authorities', 'vaults'],
  },
  {
    name: 'access',
    title: 'Access',
    views: ['people', 'sign-ins', 'bot-users', 'authtokens', 'api-keys', 'share-links'],
  },
  { name: 'events', title: 'Events', views: ['audit-log', 'event-destinations', 'event-subscriptions'] },
];

/** All views: beside the content, or on narrow screens behind a button that names the present one. */
export function Navigation({ view }: { view: ViewName }): JSX.Element {
  const isOpen = useSignal(false);
  return (
    <nav class="views" aria-label="Dashboard">
      <button
        type="button"
        class="button views-toggle"
        aria-expanded={isOpen.value}
        aria-controls="views"
        aria-label={`Menu: ${SECTION_TITLES[view]}`}
        onClick={() => {
          isOpen.value = !isOpen.value;
        }}
      >
        {SECTION_TITLES[view]}
      </button>
      <div id="views" class={isOpen.value ? 'groups open' : 'groups'}>
        {GROUPS.map(({ name, title, views }) => (
          <div key={name} class="group">
            {name !== null && <h2 id={`group-${name}`}>{title}</h2>}
            <ul aria-labelledby={name === null ? undefined : `group-${name}`}>
              {views.map((each) => (
                <li key={each}>
                  <a
                    href={each === 'overview' ? '#/' : linkTo(each)}
                    aria-current={each === view ? 'page' : undefined}
                    onClick={() => {
                      isOpen.value = false;
                    }}
                  >
                    {SECTION_TITLES[each]}
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
