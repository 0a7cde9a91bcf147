"""Tables, charts, pages, metrics files and screen messages. Nothing here knows runs or studies."""
