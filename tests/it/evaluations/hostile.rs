//! The hostile expressions and templates.

/// Expressions over `body`, which holds 60,000 `items` with `n`, a `text` of 60 KB and a short list `few`.
pub(super) const EXPRESSIONS: [&str; 27] = [
    // Loops in loops
    "body.items.filter(i, !body.items.exists(j, j.n == i.n + 'x'))",
    "body.items.map(i, {'all': body.items.map(j, j.n)})",
    "body.items.map(i, {'all': body.items})",
    "body.items.map(i, {'n': body.items.filter(j, j.n < i.n).map(k, k.n + body.text)})",
    "body.items.filter(i, body.items.all(j, body.items.exists(k, k.n != j.n)))",
    "body.few.map(a, body.few.map(b, body.few.map(c, body.few.map(d, {'n': a + b + c + d}))))",
    "body.items.exists_one(i, body.items.exists_one(j, j.n == i.n)) ? [] : [{}]",
    "body.items.filter(i, i.n in body.items.map(j, j.n + 'x'))",
    "body.items.map(i, {'text': body.text})",
    "body.items.map(i, {'text': body.text + body.text + i.n})",
    // Texts that grow exponentially
    "[{'t': body.text.replace('x', body.text)}]",
    "[{'t': body.text.replace('', body.text)}]",
    "[{'t': body.few.map(f, body.text).join(body.text).replace('x', body.text)}]",
    "[{'t': body.text.split('').join(body.text)}]",
    "[{'t': body.text.split('').map(c, body.text.split(''))}]",
    "[{'t': body.items.map(i, i.n).join(body.text)}]",
    "[{'t': body.items.map(i, body.text.replace('x', i.n)).join('')}]",
    "cel.bind(a, body.text.replace('x', 'xxxxxxxxxxxxxxxx'), cel.bind(b, a + a + a + a + a + a + a + a + a + a, [{'t': b + b + b + b + b + b + b + b + b + b}]))",
    "[{'t': body.text.lowerAscii().upperAscii().replace('X', body.text).split('x')}]",
    // Regular expressions
    "body.items.filter(i, body.text.matches('(x+x+)+y'))",
    "body.items.filter(i, i.n.matches('(a|a|a|a|a|a|a|a)*(b{500}){20}'))",
    "body.items.filter(i, i.n.matches('^(\\\\w{40}){20}$'))",
    "body.items.filter(i, body.items.map(j, j.n).join('|').matches(i.n))",
    // Ranges, and sorting by a costly key
    "lists.range(1000000).map(i, {'all': lists.range(1000000)})",
    "lists.range(1000000).map(i, {'n': body.text})",
    "body.items.sortBy(i, body.items.filter(j, j.n < i.n).size())",
    "body.items.map(i, [i.n, body.text].join('')).distinct().sort().map(n, {'n': n})",
];

/// Templates over `params`, which holds `b`, a text of 60 KB, and `list`, 2000 short texts.
pub(super) const TEMPLATES: [&str; 20] = [
    "{{ params.b | replace('a', params.b) }}",
    "{{ params.b | replace('a', params.b) | replace('a', params.b) }}",
    "{{ params.b | replace('', params.b) }}",
    "{{ params.list | join(params.b) | replace('a', params.b) }}",
    "{{ params.list | join(params.b) }}",
    "{{ range(99999) | join('x' * 100000) }}",
    "{{ range(99999) | join(params.b) }}",
    "{{ (params.b * 60000) | length }}",
    "{{ params.list | map('replace', '1', params.b) | join(params.b) }}",
    "{% set x = params.b %}{% for i in range(40) %}{% set x = x ~ x %}{{ x | length }}{{ params.b | replace('a', params.b) }}{% endfor %}",
    "{% set n = namespace(x=params.b) %}{% for i in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x | length }}",
    "{% for a in params.list %}{% for b in params.list %}{% for c in params.list %}{{ a }}{% endfor %}{% endfor %}{% endfor %}",
    "{% for a in params.list %}{% for b in params.list %}{{ params.b }}{% endfor %}{% endfor %}",
    "{% for a in params.list recursive %}{{ loop(params.list) }}{% endfor %}",
    "{% for a in params.list %}{{ params.list | sort | unique | join(params.b) }}{% endfor %}",
    "{{ params.list | batch(1, params.b) | list | tojson(1000) }}",
    "{{ params.b | list | tojson(999999) }}",
    "{{ params.b | list | join(params.b) | list | join(params.b) }}",
    "{{ ([params.b] * 100000) | tojson }}",
    "{{ params.list | join('\n') | indent(1000) | replace(' ', params.b) }}",
];
