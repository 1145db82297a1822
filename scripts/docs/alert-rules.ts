import { CONDITION_IDS, CONDITIONS } from '../../src/management/condition-kinds.ts';

const BEGIN = '  # Generated from src/management/condition-kinds.ts by npm run docs.\n';

/** The rules for Prometheus, with one for each condition of a gateway at their end. */
export function alertRules(present: string): string {
  const at = present.indexOf(BEGIN);
  if (at < 0) throw new Error(`packaging/prometheus/alerts.yml lacks the line: ${BEGIN.trim()}`);
  return `${present.slice(0, at)}${BEGIN}  - name: device-agent-gateway-conditions\n    rules:\n${CONDITION_IDS.map(rule).join('')}`;
}

function rule(id: (typeof CONDITION_IDS)[number]): string {
  const { severity, title, remedy, minutes } = CONDITIONS[id];
  const name = id.replace(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase());
  return `      - alert: Gateway${name}
        expr: device_agent_gateway_condition{condition="${id}"} > 0
        for: ${minutes}m
        labels: { severity: ${severity} }
        annotations:
          summary: ${JSON.stringify(`{{ $labels.instance }}: ${title}`)}
          remedy: ${JSON.stringify(`${capitalized(remedy)}.`)}
`;
}

const capitalized = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
